"""What a tenant may have: characters a day, voices, and consents.

Characters are counted when their text is accepted, here at once and for all relays in Redis by the next tick; nobody
who speaks waits for it. What other relays took within the last tick is not known yet: by that much, a quarter of a
second's text a relay, a tenant may exceed its share. When Redis is away each relay counts on from what it knows.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from uuid import UUID

import structlog
from redis.asyncio import Redis
from sqlalchemy import Select, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from relay import metrics
from relay.cancellation import is_cancelled
from relay.clock import Clock
from relay.errors import Refused
from storage.errors import ServerUnavailable
from storage.evidence.audit import lock
from storage.redis import translated
from storage.states import ConsentState, VoiceState
from storage.tables import consents, voices
from storage.tenancy.limits import Limits

log = structlog.get_logger()

TICK_S = 0.25
LEARN_TIMEOUT_S = 0.25
LAST_FLUSH_S = 1.0
MAX_TENANTS = 10_000
KEPT = timedelta(days=2)
"""How long a day's counter is kept: over its end, whatever a clock says."""
_BATCH = 500


@dataclass(slots=True)
class Day:
    """A tenant's characters of one day: what all relays are known to have taken, and what was taken here since."""

    day: date
    counted: int = 0
    fresh: int = 0
    known: bool = False
    """Whether the other relays' part was ever seen."""

    def reserve(self, limit: int, characters: int) -> None:
        """Take so many more, or none; raises ValueError."""
        if self.counted + self.fresh + characters > limit:
            raise ValueError(f"{characters} are more than is left of {limit}")
        self.fresh += characters

    def settle(self, sent: int, total: int) -> None:
        """The sum of all relays, of which `sent` were fresh here; less than was known says that Redis lost its data."""
        self.fresh -= sent
        self.counted = total if total >= self.counted else self.counted + sent
        self.known = True


class Quotas:
    """The characters of the tenants that speak through this relay; `run` shares them with the other relays."""

    def __init__(self, redis: Redis, clock: Clock) -> None:
        self._redis = redis
        self._clock = clock
        self._days: OrderedDict[UUID, Day] = OrderedDict()
        self._past: deque[tuple[UUID, Day]] = deque(maxlen=MAX_TENANTS)

    async def learn(self, tenant: UUID) -> None:
        """Before a tenant speaks: ask what it has had today, unless that is known; without Redis it begins at none."""
        day = self._find(tenant)
        if day.known:
            return
        try:
            async with asyncio.timeout(LEARN_TIMEOUT_S), translated():
                raw: Any = await self._redis.get(characters_key(tenant, day.day))
        except (ServerUnavailable, TimeoutError) as error:
            log.warning("what a tenant has had today is not known yet", reason=str(error))
            return
        day.settle(0, int(raw or 0))

    def reserve(self, tenant: UUID, limit: int, characters: int) -> None:
        """Take characters off the tenant's share of today; raises Refused with the time until tomorrow."""
        try:
            self._find(tenant).reserve(limit, characters)
        except ValueError as error:
            metrics.QUOTA_EXCEEDED.labels("characters").inc()
            message = f"your {limit:,} characters of today (UTC) are used up; the next ones come at midnight"
            wait_ms = until_midnight_ms(self._clock.unix_ms())
            raise Refused("quota_exceeded", message, retry_after_ms=wait_ms, retryable=False) from error

    async def run(self) -> None:
        """Count in Redis what was taken, every tick until cancelled, and then for the last time."""
        try:
            while not is_cancelled():
                await asyncio.sleep(TICK_S)
                await self._share()
        finally:
            try:
                async with asyncio.timeout(LAST_FLUSH_S):
                    await self._share()
            except TimeoutError:
                log.warning("characters are not counted")

    async def _share(self) -> None:
        for _ in range(len(self._days) + len(self._past)):
            open_days = [*self._past, *self._days.items()]
            batch = [(tenant, day, day.fresh) for tenant, day in open_days if day.fresh][:_BATCH]
            if not batch:
                break
            try:
                totals = await self._count(batch)
            except ServerUnavailable:
                # What Redis may have counted before it went away is counted again: a tenant is never granted more.
                return
            for (_, day, sent), total in zip(batch, totals, strict=True):
                day.settle(sent, total)
        self._past = deque(((tenant, day) for tenant, day in self._past if day.fresh), maxlen=MAX_TENANTS)

    async def _count(self, batch: list[tuple[UUID, Day, int]]) -> list[int]:
        async with translated(), self._redis.pipeline(transaction=False) as pipeline:
            for tenant, day, sent in batch:
                pipeline.incrby(characters_key(tenant, day.day), sent)
                pipeline.expire(characters_key(tenant, day.day), KEPT)
            replies: Any = await pipeline.execute()
        return [int(total) for total in replies[::2]]

    def _find(self, tenant: UUID) -> Day:
        today = self._today()
        found = self._days.get(tenant)
        if found is None or found.day != today:
            if found is not None and found.fresh:
                self._past.append((tenant, found))
            found = self._days[tenant] = Day(today)
        self._days.move_to_end(tenant)
        self._forget_quiet()
        return found

    def _forget_quiet(self) -> None:
        """Of more tenants than can be kept those are forgotten who have not spoken for longest; they are asked for."""
        while len(self._days) > MAX_TENANTS:
            tenant, day = self._days.popitem(last=False)
            if day.fresh:
                self._past.append((tenant, day))

    def _today(self) -> date:
        return datetime.fromtimestamp(self._clock.unix_ms() / 1000, UTC).date()


def characters_key(tenant: UUID, day: date) -> str:
    """Where the characters of a day are counted."""
    return f"timbrelay:quota:characters:{tenant}:{day.isoformat()}"


def until_midnight_ms(now_ms: int) -> int:
    """From now to the next midnight in UTC, rounded up: 1 to 86,400,000."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    midnight = datetime.combine(now.date() + timedelta(days=1), time(), UTC)
    return int(midnight.timestamp() * 1000) - now_ms


async def check_voices(connection: AsyncConnection, tenant: UUID, limits: Limits) -> None:
    """Before a voice is made, and in its transaction: raises Refused when the tenant has as many as it may.

    From here to the transaction's end the tenant's other creations wait, or two could take the last place.
    """
    kept = select(voices.c.id).where(voices.c.tenant_id == tenant, voices.c.state != VoiceState.DELETED)
    await _check_room(connection, f"voices of {tenant}", kept, limits.voices, "voices")


async def check_consents(connection: AsyncConnection, tenant: UUID, limits: Limits) -> None:
    """The same before a consent is made, which may hold a recording as well."""
    kept = select(consents.c.id).where(consents.c.tenant_id == tenant, consents.c.state != ConsentState.DELETED)
    await _check_room(connection, f"consents of {tenant}", kept, limits.consents, "consents")


async def _check_room(connection: AsyncConnection, place: str, kept: Select[Any], limit: int, things: str) -> None:
    await lock(connection, place)
    query = select(func.count()).select_from(kept.limit(limit).subquery())
    if (await connection.execute(query)).scalar_one() >= limit:
        metrics.QUOTA_EXCEEDED.labels(things).inc()
        message = f"you have {limit:,} {things}, all that you may; delete one first"
        raise Refused("quota_exceeded", message, retryable=False)
