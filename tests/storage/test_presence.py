"""storage.streams.presence: who is there, and what each says of itself."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from storage.redis import RELAYS, WORKERS, connect, relay_key, worker_key
from storage.settings import Settings
from storage.streams.presence import (
    RelayDemand,
    WorkerLoad,
    announce_relay,
    announce_worker,
    count_workers,
    read_relays,
    read_workers,
    withdraw_relay,
    withdraw_worker,
)


@pytest.fixture
async def redis(settings: Settings) -> AsyncIterator[Redis]:
    client = connect(settings.redis_url)
    yield client
    await client.aclose()


async def test_workers_are_counted_while_they_say_so(redis: Redis) -> None:
    """Presence is announced and withdrawn."""
    await announce_worker(redis, "a", WorkerLoad(24, 3, 0.5))
    await announce_worker(redis, "b")
    assert await count_workers(redis) == 2
    assert await read_workers(redis) == {"a": WorkerLoad(24, 3, 0.5), "b": None}
    await withdraw_worker(redis, "a")
    assert await count_workers(redis) == 1


async def test_relays_say_what_their_listeners_ask_for(redis: Redis) -> None:
    """Each reads what all others have said last."""
    await announce_relay(redis, "a", RelayDemand(1, 2, 0))
    await announce_relay(redis, "a", RelayDemand(3, 4, 1))
    await announce_relay(redis, "b", RelayDemand(0, 0, 0))
    assert await read_relays(redis) == {"a": RelayDemand(3, 4, 1), "b": RelayDemand(0, 0, 0)}
    await withdraw_relay(redis, "b")
    assert list(await read_relays(redis)) == ["a"]


async def test_a_report_ends_with_its_sender(redis: Redis) -> None:
    """Reports expire, and the names of those who died are removed by whoever reads."""
    await announce_worker(redis, "a", WorkerLoad(1, 0, 0.0))
    await announce_relay(redis, "a", RelayDemand(1, 1, 0))
    assert 0 < await redis.pttl(worker_key("a")) <= 3000
    assert 0 < await redis.pttl(relay_key("a")) <= 3000
    await redis.delete(worker_key("a"), relay_key("a"))
    assert (await read_workers(redis), await read_relays(redis)) == ({}, {})
    assert await redis.exists(WORKERS, RELAYS) == 0


@pytest.mark.parametrize(
    "report", ["1", "", "[]", "null", '{"capacity": 1}', '{"capacity": "x", "active": 1, "busy": 1}']
)
async def test_a_report_of_another_release_counts_as_none(redis: Redis, report: str) -> None:
    """A worker whose report cannot be read is there, and not held to anything; such a relay asks for nothing."""
    await announce_worker(redis, "a")
    await redis.set(worker_key("a"), report)
    assert await read_workers(redis) == {"a": None}
    await announce_relay(redis, "r", RelayDemand(1, 1, 0))
    await redis.set(relay_key("r"), report)
    assert await read_relays(redis) == {}
