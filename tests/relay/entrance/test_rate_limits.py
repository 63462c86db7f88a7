"""relay.entrance.rate_limits: who may ask how often, and from where wrong keys may come."""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis
from sqlalchemy import update
from starlette.requests import HTTPConnection
from websockets.asyncio.client import connect as connect_socket
from websockets.exceptions import InvalidStatus

from relay.entrance import rate_limits
from relay.entrance.authentication import authenticate, find_origin
from relay.entrance.rate_limits import PREFIX, UNKNOWN, Rate, RateLimiter, group_address
from relay.errors import Refused, ServiceUnavailable
from storage.database import Database
from storage.redis import connect
from storage.settings import Settings
from storage.states import TenantState
from storage.tables import tenants
from storage.tenancy.api_keys import Caller
from storage.tenancy.limits import Limits
from tests.conftest import DEADLINE_S, MakeTenant, RunningStack
from tests.relay.conftest import open_socket, revoke

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


async def test_a_refused_address_costs_no_look_up(settings: Settings, limiter: RateLimiter) -> None:
    """Whatever key it brings: nobody is asked whether it is one."""
    nowhere = Database("postgresql://nobody@127.0.0.1:1/none", settings.service_role)
    with pytest.raises(ServiceUnavailable):
        await authenticate("tr_whatever", "192.0.2.1", nowhere, limiter)
    for _ in range(FAILURES):
        await limiter.note_failure("192.0.2.1")
    await refusal(authenticate("tr_whatever", "192.0.2.1", nowhere, limiter))
    await nowhere.close()


def status(answer: Any) -> tuple[int, str, bool]:
    return answer.status_code, answer.json().get("code", ""), "Retry-After" in answer.headers


async def test_a_stranger_is_turned_away_and_nobody_else_with_him(
    start_relay: Callable[..., RunningStack], make_tenant: MakeTenant
) -> None:
    """Behind a proxy that is trusted each client counts for itself, over HTTP and on the socket."""
    stack = start_relay(trusted_proxies="127.0.0.1", max_wrong_keys_per_minute=FAILURES)
    right = {"Authorization": f"Bearer {(await make_tenant('acme')).key}"}
    wrong = {"Authorization": "Bearer tr_wrong", "X-Forwarded-For": "198.51.100.7, 192.0.2.1"}
    async with httpx2.AsyncClient(base_url=stack.relay_url) as client:
        for _ in range(FAILURES):
            assert status(await client.get("/v1/voices", headers=wrong)) == (401, "unauthorized", False)
        assert status(await client.get("/v1/voices", headers=wrong)) == (429, "rate_limited", True)
        stranger = {**right, "X-Forwarded-For": "192.0.2.1"}
        assert status(await client.get("/v1/voices", headers=stranger)) == (429, "rate_limited", True)
    url = stack.relay_url.replace("http", "ws") + "/v1/stream"
    with pytest.raises(InvalidStatus) as caught:
        async with connect_socket(url, additional_headers=stranger):
            pass
    assert caught.value.response.status_code == 429
    assert 1 <= int(caught.value.response.headers["Retry-After"]) <= 60
    neighbour = {**right, "X-Forwarded-For": "192.0.2.2"}
    async with httpx2.AsyncClient(base_url=stack.relay_url) as client:
        assert status(await client.get("/v1/voices", headers=neighbour)) == (200, "", False)
    async with connect_socket(url, additional_headers=neighbour) as connection:
        assert json.loads(await connection.recv())["type"] == "hello"


async def test_nobody_can_pretend_to_be_elsewhere(
    start_relay: Callable[..., RunningStack], make_tenant: MakeTenant, database: Database
) -> None:
    """Without a trusted proxy `X-Forwarded-For` says nothing; and a tenant's own rate holds for all of its keys."""
    stack = start_relay(max_wrong_keys_per_minute=FAILURES)
    tenant, again, other = await make_tenant("acme"), await make_tenant("acme"), await make_tenant("other")
    async with database.transaction(operator=True) as connection:
        limits = Limits(requests_per_minute=3)
        await connection.execute(update(tenants).where(tenants.c.id == tenant.id).values(limits=limits.model_dump()))
    async with httpx2.AsyncClient(base_url=stack.relay_url) as client:

        async def ask(key: str, number: int = 0) -> tuple[int, str, bool]:
            headers = {"Authorization": f"Bearer {key}", "X-Forwarded-For": f"192.0.2.{number}"}
            return status(await client.get("/v1/voices", headers=headers))

        asked = [await ask(key) for key in (tenant.key, again.key, tenant.key, again.key)]
        assert asked == [(200, "", False)] * 3 + [(429, "rate_limited", True)]
        assert await ask(other.key) == (200, "", False)
        for number in range(FAILURES):
            assert await ask("tr_wrong", number) == (401, "unauthorized", False)
        assert await ask("tr_wrong", 99) == (429, "rate_limited", True)


async def test_who_was_let_in_just_now_is_not_locked_out_by_a_neighbour(
    start_relay: Callable[..., RunningStack], make_tenant: MakeTenant, database: Database, redis: Redis
) -> None:
    """Of a locked address the keys that this relay has found valid still open; not new ones, nor revoked ones."""
    stack = start_relay(max_wrong_keys_per_minute=FAILURES)
    seen, lost, fresh = await make_tenant("acme"), await make_tenant("acme"), await make_tenant("other")
    async with httpx2.AsyncClient(base_url=stack.relay_url) as client:

        async def ask(key: str) -> int:
            answer = await client.get("/v1/voices", headers={"Authorization": f"Bearer {key}"})
            return int(answer.status_code)

        assert [await ask(seen.key), await ask(lost.key)] == [200, 200]
        assert [await ask("tr_wrong") for _ in range(FAILURES + 1)] == [401] * FAILURES + [429]
        assert [await ask(seen.key), await ask(lost.key), await ask(fresh.key)] == [200, 200, 429]
        async with open_socket(stack, seen.key), open_socket(stack, lost.key) as connection:
            await revoke(database, redis, lost.key_id)
            async with asyncio.timeout(DEADLINE_S):
                await connection.wait_closed()
        # Not even looked up: that would be 401, once.
        assert [await ask(lost.key), await ask(seen.key)] == [429, 200]


async def test_a_request_without_a_key_tries_none_out(
    start_relay: Callable[..., RunningStack], make_tenant: MakeTenant
) -> None:
    """It is refused as ever, and locks nobody out; a text that is no key is a wrong one."""
    stack = start_relay(max_wrong_keys_per_minute=FAILURES)
    tenant = await make_tenant("acme")
    async with httpx2.AsyncClient(base_url=stack.relay_url) as client:

        async def ask(*headers: str) -> int:
            sent = [("Authorization", header) for header in headers]
            return int((await client.get("/v1/voices", headers=sent)).status_code)

        for _ in range(FAILURES):
            assert [await ask(), await ask(""), await ask("Bearer"), await ask("Basic dXNlcg==")] == [401] * 4
        assert await ask("Bearer nonsense") == 401
        assert await ask(f"Bearer {tenant.key}") == 200
        for _ in range(FAILURES - 1):
            assert await ask("Bearer nonsense") == 401
        assert [await ask("Bearer nonsense"), await ask()] == [429, 401]


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
    origin = find_origin(HTTPConnection({"type": "http", "headers": [], "client": None if text is None else (text, 1)}))
    assert origin == UNKNOWN or ipaddress.ip_address(origin)
