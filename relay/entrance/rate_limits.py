"""How often a tenant may ask, and how often an address may come with a wrong key.

Sliding windows of a minute in Redis, shared by all relays; a refusal is not counted, so that who asks too often is
held to his rate and not locked out. Windows, and their atomic scripts, are those of `limits`.

When Redis is away the limits fail open to windows of this process alone: they are there to keep the load fair and keys
from being tried out, not to keep strangers out, so an outage must not turn every tenant away; but no process can be
flooded meanwhile. Keys have 256 random bits: nobody guesses one faster for it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
import time
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any, TypeVar

import structlog
from limits import RateLimitItemPerMinute
from limits.aio.storage import MemoryStorage, RedisStorage
from limits.aio.strategies import SlidingWindowCounterRateLimiter
from redis.asyncio import Redis
from redis.exceptions import RedisError

from relay import metrics
from relay.entrance.known_keys import KnownKeys
from relay.errors import Refused
from storage.tenancy.api_keys import Caller
from storage.tenancy.limits import Limits

log = structlog.get_logger()

PREFIX = "timbrelay:rate"
ANSWER_TIMEOUT_S = 0.5
"""How long a request waits for Redis before it is judged without."""
AWAY_S = 1.0
"""How long Redis is left alone when it did not answer."""
MAX_LOCAL_KEYS = 10_000
IPV6_PREFIX = 64
"""What a subscriber gets (RFC 6177, section 2); whoever has one address of it has all."""
UNKNOWN = "unknown"

Answer = TypeVar("Answer")
_Windows = SlidingWindowCounterRateLimiter


class Rate(StrEnum):
    """What is counted for a tenant, each against a rate of its own."""

    REQUEST = "request"
    UPLOAD = "upload"

    def of(self, limits: Limits) -> int:
        """How many a minute these limits allow."""
        return {Rate.REQUEST: limits.requests_per_minute, Rate.UPLOAD: limits.uploads_per_minute}[self]


class RateLimiter:
    """Counts and refuses; `redis` is a client of its own with a small pool, so that a flood delays no audio."""

    def __init__(self, redis: Redis, failures_per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        # The address is not used: the client's pool is (redis://, rediss:// and unix:// alike).
        options: dict[str, Any] = {"connection_pool": redis.connection_pool}
        shared = RedisStorage("async+redis://", implementation="redispy", key_prefix=PREFIX, **options)
        self._shared = _Windows(shared)
        self._clock = clock
        self.known = KnownKeys(clock)
        """Whose keys are not held to what else comes from their address; a watch takes away what is revoked."""
        self._failures = RateLimitItemPerMinute(failures_per_minute, namespace="failure")
        self._away_until = -math.inf
        self._away = False
        self._forget()

    async def check(self, caller: Caller, kind: Rate = Rate.REQUEST) -> None:
        """Count one for the caller's tenant (an operator's key has a rate of its own); raises Refused."""
        item = RateLimitItemPerMinute(kind.of(caller.limits), namespace=kind)
        who = str(caller.tenant or caller.key_id)
        if not await self._ask(lambda windows: windows.hit(item, who)):
            raise await self._refuse(item, who, f"you may send {item.amount} {kind}s a minute")

    async def check_address(self, host: str | None) -> None:
        """Before an unknown key is looked up: raises Refused when too many wrong ones came from this address."""
        where = group_address(host)
        if not await self._ask(lambda windows: windows.test(self._failures, where)):
            raise await self._refuse(self._failures, where, "too many wrong keys came from your address")

    async def note_failure(self, host: str | None) -> None:
        """A wrong key came from this address."""
        metrics.WRONG_KEYS.inc()
        await self._ask(lambda windows: windows.hit(self._failures, group_address(host)))

    async def _refuse(self, item: RateLimitItemPerMinute, who: str, reason: str) -> Refused:
        metrics.RATE_LIMITED.labels(item.namespace).inc()
        stats = await self._ask(lambda windows: windows.get_window_stats(item, who))
        wait_s = max(math.ceil(stats.reset_time - time.time()), 1)
        return Refused("rate_limited", f"{reason}; try again in {wait_s} s", retry_after_ms=1000 * wait_s)

    async def _ask(self, question: Callable[[_Windows], Awaitable[Answer]]) -> Answer:
        """The answer of the shared windows, or of this process's own when Redis does not answer."""
        if self._clock() >= self._away_until:
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    answer = await question(self._shared)
                self._away = False
                return answer
            except (RedisError, OSError, TimeoutError) as error:
                self._note_outage(error)
        if len(self._memory.storage) > MAX_LOCAL_KEYS:
            self._forget()
        return await question(self._local)

    def _note_outage(self, error: Exception) -> None:
        if not self._away:
            log.warning("rates are counted by each relay alone", reason=str(error) or type(error).__name__)
        self._away = True
        self._away_until = self._clock() + AWAY_S

    def _forget(self) -> None:
        self._memory = MemoryStorage()
        self._local = _Windows(self._memory)


def name_address(host: str | None) -> str:
    """An address in its one spelling, an IPv4 one that was mapped into IPv6 as itself; `unknown` for what is none."""
    address = _read_address(host)
    return UNKNOWN if address is None else str(address)


def group_address(host: str | None) -> str:
    """Whom an address stands for: itself, or with IPv6 its /64; all that is no address is one."""
    address = _read_address(host)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, IPV6_PREFIX), strict=False))
    return name_address(host)


def _read_address(host: str | None) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address((host or "").partition("%")[0])
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, ipaddress.IPv6Address) else address
