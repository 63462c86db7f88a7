"""relay.rate_limits: who may ask how often, and from where wrong keys may come."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay import rate_limits
from relay.errors import Refused
from relay.rate_limits import PREFIX, UNKNOWN, Rate, RateLimiter, group_address
from storage.redis import connect
from storage.settings import Settings
from storage.states import TenantState
from storage.tenancy.api_keys import Caller
from storage.tenancy.limits import Limits

FAILURES = 5


def caller(tenant: UUID | None, requests: int = 3, uploads: int = 1) -> Caller:
    limits = Limits(requests_per_minute=requests, uploads_per_minute=uploads)
    return Caller(uuid4(), tenant, frozenset(), None, limits, TenantState.ACTIVE)


@asynccontextmanager
async def limiter_at(url: str) -> AsyncIterator[RateLimiter]:
    client = connect(url, connections=2)
    try:
        yield RateLimiter(client, FAILURES)
    finally:
        await client.aclose()


@pytest.fixture
async def limiter(settings: Settings) -> AsyncIterator[RateLimiter]:
    async with limiter_at(settings.redis_url) as made:
        yield made


async def refusal(asked: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        await asked
    assert caught.value.code == "rate_limited"
    assert caught.value.retryable
    assert 1000 <= (caught.value.retry_after_ms or 0) <= 60_000
    return caught.value


async def test_a_tenant_that_asks_too_often_is_told_when_to_come_back(limiter: RateLimiter) -> None:
    """Its keys count together, its uploads by themselves, and another tenant is not touched."""
    tenant, other = uuid4(), uuid4()
    for _ in range(3):
        await limiter.check(caller(tenant))
    assert "3 requests a minute" in (await refusal(limiter.check(caller(tenant)))).message
    await limiter.check(caller(tenant), Rate.UPLOAD)
    await refusal(limiter.check(caller(tenant), Rate.UPLOAD))
    await limiter.check(caller(other))


async def test_operators_have_rates_of_their_own(limiter: RateLimiter) -> None:
    """One key without a tenant does not use up another's."""
    first, second = caller(None, requests=1), caller(None, requests=1)
    await limiter.check(first)
    await refusal(limiter.check(first))
    await limiter.check(second)


async def test_a_tenant_without_any_requests_is_always_refused(limiter: RateLimiter) -> None:
    """A rate of zero is a rate."""
    await refusal(limiter.check(caller(uuid4(), requests=0)))


async def test_two_relays_count_together(settings: Settings, limiter: RateLimiter) -> None:
    """What one has let through the other knows; all of it lies under one name and expires."""
    tenant = uuid4()
    async with limiter_at(settings.redis_url) as other:
        for one in (limiter, other, limiter):
            await one.check(caller(tenant))
        await refusal(other.check(caller(tenant)))
    client = connect(settings.redis_url)
    keys = [key async for key in client.scan_iter()]
    assert keys
    for key in keys:
        assert key.startswith(f"{PREFIX}:".encode())
        assert 0 < await client.ttl(key) <= 120
    await client.aclose()


async def test_an_address_with_too_many_wrong_keys_is_refused_and_no_other(limiter: RateLimiter) -> None:
    """Its whole /64 is, in IPv6; its neighbours are not."""
    for wrong, same, other in (
        ("192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"),
        ("2001:db8::1", "2001:db8::ffff:0:1", "2001:db8:0:1::1"),
    ):
        for _ in range(FAILURES):
            await limiter.check_address(wrong)
            await limiter.note_failure(wrong)
        await refusal(limiter.check_address(wrong))
        await refusal(limiter.check_address(same))
        await limiter.check_address(other)


async def test_without_redis_each_relay_counts_alone() -> None:
    """An outage turns nobody away, and lets nobody ask without bound."""
    async with limiter_at("unix:///nowhere/valkey.sock") as limiter:
        tenant = uuid4()
        for _ in range(3):
            await limiter.check(caller(tenant))
        await refusal(limiter.check(caller(tenant)))
        for _ in range(FAILURES):
            await limiter.note_failure("192.0.2.1")
        await refusal(limiter.check_address("192.0.2.1"))
        await limiter.check_address("192.0.2.2")


async def test_a_redis_that_hangs_delays_nobody_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks is judged without it after a moment, and for a second it is not asked again."""
    asked = 0

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    monkeypatch.setattr(rate_limits, "AWAY_S", 3600.0)
    async with server, limiter_at(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}") as limiter:
        async with asyncio.timeout(10):
            for _ in range(3):
                await limiter.check(caller(UUID(int=1)))
            await refusal(limiter.check(caller(UUID(int=1))))
    assert asked == 1


async def test_the_memory_of_an_outage_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a flood of addresses no more are kept than there is room for."""
    monkeypatch.setattr(rate_limits, "MAX_LOCAL_KEYS", 50)
    async with limiter_at("unix:///nowhere/valkey.sock") as limiter:
        for number in range(200):
            await limiter.note_failure(f"192.0.2.{number}")
            assert len(limiter._memory.storage) <= 51


async def test_redis_is_asked_again_when_it_is_back(settings: Settings) -> None:
    """The shared count goes on as soon as the pause is over."""
    now = [0.0]
    client = connect(settings.redis_url)
    limiter = RateLimiter(client, FAILURES, lambda: now[0])
    tenant = uuid4()
    await limiter.check(caller(tenant))
    limiter._note_outage(ConnectionError("gone"))
    for _ in range(3):
        await limiter.check(caller(tenant))
    await refusal(limiter.check(caller(tenant)))
    now[0] += 10
    await limiter.check(caller(tenant))
    await limiter.check(caller(tenant))
    await refusal(limiter.check(caller(tenant)))
    await client.aclose()


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_stands_for_itself(address: ipaddress.IPv4Address) -> None:
    """Also where the socket is an IPv6 one and maps it (RFC 4291, section 2.5.5.2)."""
    assert group_address(str(address)) == group_address(f"::ffff:{address}") == str(address)


@given(st.ip_addresses(v=6, network="2000::/3"), st.integers(0, 2**64 - 1))
def test_an_ipv6_address_stands_for_its_64(address: ipaddress.IPv6Address, host: int) -> None:
    """Whoever has one of its addresses has all of them; the next /64 is somebody else's."""
    number = int(address)
    sibling = ipaddress.IPv6Address((number >> 64 << 64) | host)
    stranger = ipaddress.IPv6Address(number ^ (1 << 64))
    assert group_address(str(sibling)) == group_address(str(address)) != group_address(str(stranger))


@given(st.one_of(st.none(), st.text()))
def test_what_is_no_address_is_one_nobody(text: str | None) -> None:
    """A proxy that is trusted may hand on anything; it never makes a key of its own."""
    group = group_address(text)
    assert group == UNKNOWN or ipaddress.ip_network(group)
