"""relay.speaking.hub: relays that know of each other and of the workers through Redis."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from relay.clock import SystemClock
from relay.entrance.admission import Admission, Bounds, Place
from relay.errors import Refused
from relay.speaking.hub import Hub
from storage.redis import WORKERS, connect, worker_key
from storage.settings import Settings
from storage.streams.presence import WorkerLoad, read_relays
from tests.conftest import DEADLINE_S

TENANT = uuid4()


@pytest.fixture
async def redis(settings: Settings) -> AsyncIterator[Redis]:
    """With a worker that carries two streams and never goes."""
    client = connect(settings.redis_url)
    await client.sadd(WORKERS, "w")
    await client.set(worker_key("w"), json.dumps(asdict(WorkerLoad(2, 0, 0.0))))
    yield client
    await client.aclose()


@asynccontextmanager
async def running(settings: Settings, name: str) -> AsyncIterator[Hub]:
    """A relay's hub, once it knows of the worker."""
    clients = (connect(settings.redis_url), connect(settings.redis_url))
    hub = Hub(*clients, name, 5000, Admission(name, SystemClock(), Bounds(10, 10, 10)))
    task = asyncio.create_task(hub.run())
    try:
        await until(lambda: hub.admission.workers == 1)
        yield hub
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for client in clients:
            await client.aclose()


async def until(condition: Callable[[], bool]) -> None:
    """Looks again and again; what is waited for happens in Redis, and nobody calls."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def speak(hub: Hub, listener: str) -> Place:
    place = hub.admission.admit(TENANT, listener)
    hub.admission.note(place, math.inf, 0)
    return place


def takes_a_newcomer(hub: Hub) -> bool:
    try:
        hub.admission.release(hub.admission.admit(TENANT, "new"))
    except Refused:
        return False
    return True


async def test_two_relays_share_what_the_workers_carry(settings: Settings, redis: Redis) -> None:
    """One stream each is all there is; when one relay ends, the other has its stream within a heartbeat."""
    async with running(settings, "a") as first:
        async with running(settings, "b") as second:
            speak(first, "x")
            speak(second, "y")
            await until(lambda: not takes_a_newcomer(first))
            await until(lambda: not takes_a_newcomer(second))
        assert list(await read_relays(redis)) == ["a"]
        await until(lambda: takes_a_newcomer(first))


async def test_a_worker_that_goes_closes_the_gate(settings: Settings, redis: Redis) -> None:
    """Within a heartbeat nobody is taken any more, and a new worker opens it again."""
    async with running(settings, "a") as hub:
        assert takes_a_newcomer(hub)
        await redis.delete(worker_key("w"))
        await until(lambda: not takes_a_newcomer(hub))
        await redis.sadd(WORKERS, "v")
        await redis.set(worker_key("v"), json.dumps(asdict(WorkerLoad(2, 0, 0.0))))
        await until(lambda: takes_a_newcomer(hub))
