"""relay.entrance.quotas: characters a day and voices, for a tenant and for no other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis
from sqlalchemy import update

from relay.entrance.quotas import (
    MAX_TENANTS,
    Day,
    Quotas,
    characters_key,
    check_consents,
    check_voices,
    until_midnight_ms,
)
from relay.errors import Refused
from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.redis import connect
from storage.settings import Settings
from storage.states import ConsentState
from storage.tables import tenants
from storage.tenancy.limits import Limits
from storage.voices.consents import end_consent, erase_consent, grant_consent
from storage.voices.voices import begin_deletion, finish_deletion
from tests.conftest import STATEMENT, TERMS, MakeTenant, MakeVoice, RunningStack
from tests.relay.conftest import EMBEDDING, hear_error, hear_until, open_context, open_socket

DAY_MS = 86_400_000
LIMIT = 100


@dataclass
class Clock:
    """Unix time that stands where the test says."""

    ms: int = int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp() * 1000)

    def monotonic(self) -> float:
        return self.ms / 1000

    def unix_ms(self) -> int:
        return self.ms


@asynccontextmanager
async def running(quotas: Quotas) -> AsyncIterator[Quotas]:
    """Shares what it has counted, at the latest when the block ends."""
    task = asyncio.create_task(quotas.run())
    await asyncio.sleep(0)
    try:
        yield quotas
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def refusal(quotas: Quotas, tenant: UUID, characters: int) -> Refused:
    with pytest.raises(Refused) as caught:
        quotas.reserve(tenant, LIMIT, characters)
    assert (caught.value.code, caught.value.retryable) == ("quota_exceeded", False)
    return caught.value


async def count(redis: Redis, tenant: UUID, day: date = date(2026, 3, 1)) -> int:
    return int(await redis.get(characters_key(tenant, day)) or 0)


async def test_a_tenants_characters_are_counted_to_the_last(redis: Redis) -> None:
    """The hundredth is accepted and the next refused until midnight; another tenant has its own hundred."""
    quotas, tenant = Quotas(redis, Clock()), uuid4()
    quotas.reserve(tenant, LIMIT, 99)
    assert refusal(quotas, tenant, 2).retry_after_ms == DAY_MS // 2
    quotas.reserve(tenant, LIMIT, 1)
    refusal(quotas, tenant, 1)
    quotas.reserve(uuid4(), LIMIT, 100)


async def test_what_one_relay_has_taken_the_next_one_knows(redis: Redis) -> None:
    """A relay asks before a tenant speaks there, and hears of what others take while it does."""
    tenant = uuid4()
    async with running(Quotas(redis, Clock())) as first:
        first.reserve(tenant, LIMIT, 60)
    assert await count(redis, tenant) == 60
    assert 0 < await redis.ttl(characters_key(tenant, date(2026, 3, 1))) <= 2 * 86_400
    second = Quotas(redis, Clock())
    await second.learn(tenant)
    refusal(second, tenant, 41)
    async with running(second):
        second.reserve(tenant, LIMIT, 30)
    async with running(first):
        first.reserve(tenant, LIMIT, 5)
    refusal(first, tenant, 6)
    assert await count(redis, tenant) == 95


async def test_at_midnight_in_utc_a_new_day_begins(redis: Redis) -> None:
    """What was taken a moment before belongs to the old one."""
    clock, tenant = Clock(), uuid4()
    quotas = Quotas(redis, clock)
    quotas.reserve(tenant, LIMIT, 100)
    clock.ms += DAY_MS // 2
    async with running(quotas):
        quotas.reserve(tenant, LIMIT, 70)
        refusal(quotas, tenant, 31)
    assert await count(redis, tenant) == 100
    assert await count(redis, tenant, date(2026, 3, 2)) == 70


async def test_without_redis_a_relay_counts_on_and_shares_it_later(settings: Settings, redis: Redis) -> None:
    """Nobody is refused for the outage, nobody gets more from this relay, and nothing that was taken is forgotten."""
    away, tenant = connect("unix:///nowhere/valkey.sock"), uuid4()
    quotas = Quotas(away, Clock())
    await quotas.learn(tenant)
    async with running(quotas):
        quotas.reserve(tenant, LIMIT, 80)
    refusal(quotas, tenant, 21)
    quotas._redis = redis
    async with running(quotas):
        quotas.reserve(tenant, LIMIT, 10)
    assert await count(redis, tenant) == 90
    await away.aclose()


async def test_a_redis_that_lost_its_data_grants_nothing_anew(redis: Redis) -> None:
    """What a relay knows was taken stays taken."""
    tenant = uuid4()
    quotas = Quotas(redis, Clock())
    async with running(quotas):
        quotas.reserve(tenant, LIMIT, 60)
    await redis.flushall()
    async with running(quotas):
        quotas.reserve(tenant, LIMIT, 30)
    refusal(quotas, tenant, 11)


async def test_no_more_tenants_are_remembered_than_there_is_room_for(redis: Redis) -> None:
    """Who has not spoken for longest is asked for anew, and what it took is shared all the same."""
    quotas, first = Quotas(redis, Clock()), uuid4()
    quotas.reserve(first, LIMIT, 60)
    for _ in range(MAX_TENANTS + 5):
        quotas.reserve(uuid4(), LIMIT, 1)
    assert len(quotas._days) <= MAX_TENANTS
    async with running(quotas):
        pass
    assert await count(redis, first) == 60


@given(st.integers(0, 4_102_444_800_000))
def test_the_time_to_midnight_ends_at_midnight(now_ms: int) -> None:
    """More than nothing, a day at most, and then it is midnight in UTC."""
    wait_ms = until_midnight_ms(now_ms)
    assert 1 <= wait_ms <= DAY_MS
    assert (now_ms + wait_ms) % DAY_MS == 0


@given(st.lists(st.tuples(st.sampled_from(["here", "there", "share"]), st.integers(1, 60)), max_size=40))
def test_two_relays_never_exceed_a_limit_by_more_than_one_tick(steps: list[tuple[str, int]]) -> None:
    """However they take turns: nothing is lost or counted twice, and each alone stays within the limit."""
    shared, taken = 0, 0
    relays = {"here": Day(date(2026, 3, 1)), "there": Day(date(2026, 3, 1))}
    for step, characters in steps:
        if step == "share":
            for day in relays.values():
                sent = day.fresh
                shared += sent
                day.settle(sent, shared)
            continue
        day = relays[step]
        try:
            day.reserve(LIMIT, characters)
        except ValueError:
            assert day.counted + day.fresh + characters > LIMIT
        else:
            taken += characters
        assert day.counted + day.fresh <= max(LIMIT, day.counted)
    assert shared + sum(day.fresh for day in relays.values()) == taken
    assert all(day.counted <= shared for day in relays.values())


async def test_a_socket_is_held_to_its_tenants_limits(
    start_relay: Callable[..., RunningStack], make_tenant: MakeTenant, make_voice: MakeVoice, database: Database
) -> None:
    """Characters and contexts, on all of its connections together; another tenant's go on."""
    stack = start_relay()
    tenant, other = await make_tenant("acme"), await make_tenant("other")
    limits = Limits(characters_per_day=40, contexts=2).model_dump()
    async with database.transaction(operator=True) as connection:
        await connection.execute(update(tenants).where(tenants.c.id == tenant.id).values(limits=limits))
    voice, strange = await make_voice(tenant.id, embedding=EMBEDDING), await make_voice(other.id, embedding=EMBEDDING)
    text = {"type": "text", "context": "c", "text": "This is a line to be counted. "}
    async with (
        open_socket(stack, tenant.key) as first,
        open_socket(stack, tenant.key) as second,
        open_socket(stack, other.key) as stranger,
    ):
        await open_context(first, voice)
        await open_context(second, voice)
        await open_context(stranger, strange)
        await second.send(json.dumps({"type": "open", "context": "d", "voice": str(voice)}))
        assert (await hear_error(second))["code"] == "too_many_contexts"
        for one in (first, second, stranger):
            await one.send(json.dumps(text))
            if one is first:
                await hear_until(first, "sentence")
        error = await hear_error(second)
        assert (error["code"], error["context"], error["retryable"]) == ("quota_exceeded", "c", False)
        assert 0 < error["retry_after_ms"] <= DAY_MS
        await stranger.send(json.dumps(text))
        await hear_until(stranger, "sentence")
    async with open_socket(stack, tenant.key) as again:
        await open_context(again, voice)
        await again.send(json.dumps(text))
        assert (await hear_error(again))["code"] == "quota_exceeded"


async def test_a_tenant_has_as_many_voices_as_it_may(
    database: Database, keyring: Keyring, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """One more is refused for good; a deleted voice makes room, and another tenant's do not count."""
    tenant, other = (await make_tenant("acme")).id, (await make_tenant("other")).id
    await make_voice(other)
    limits = Limits(voices=2)
    voices = [await make_voice(tenant) for _ in range(2)]
    async with database.transaction(tenant=tenant) as connection:
        with pytest.raises(Refused) as caught:
            await check_voices(connection, tenant, limits)
        await check_voices(connection, tenant, Limits(voices=3))
    assert (caught.value.code, caught.value.retryable, caught.value.retry_after_ms) == ("quota_exceeded", False, None)
    async with database.transaction(tenant=tenant) as connection:
        await begin_deletion(connection, tenant, voices[0])
        await finish_deletion(connection, tenant, voices[0])
        await check_voices(connection, tenant, limits)


async def test_a_tenant_has_as_many_consents_as_it_may(
    database: Database, keyring: Keyring, make_tenant: MakeTenant
) -> None:
    """A deleted one makes room, one that is withdrawn and not deleted yet does not."""
    tenant = (await make_tenant("acme")).id
    limits = Limits(consents=1)
    async with database.transaction(tenant=tenant) as connection:
        await check_consents(connection, tenant, limits)
        consent = (await grant_consent(connection, keyring, tenant, TERMS, STATEMENT)).id
        await end_consent(connection, tenant, consent, ConsentState.WITHDRAWN)
        with pytest.raises(Refused) as caught:
            await check_consents(connection, tenant, limits)
        await erase_consent(connection, tenant, consent)
        await check_consents(connection, tenant, limits)
    assert (caught.value.code, caught.value.retryable) == ("quota_exceeded", False)


async def test_the_last_voice_goes_to_one(database: Database, make_tenant: MakeTenant) -> None:
    """Who asks second waits until the first has made its voice, and is told that it was the last."""
    tenant = (await make_tenant("acme")).id
    order: list[str] = []

    async def second() -> None:
        async with database.transaction(tenant=tenant) as connection:
            order.append("second asks")
            await check_voices(connection, tenant, Limits(voices=1))
            order.append("second is through")

    async with database.transaction(tenant=tenant) as connection:
        await check_voices(connection, tenant, Limits(voices=1))
        waiting = asyncio.create_task(second())
        while not order:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        done, _ = await asyncio.wait([waiting], timeout=0.2)
        assert not done
        order.append("first ends")
    await waiting
    assert order == ["second asks", "first ends", "second is through"]
