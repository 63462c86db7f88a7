"""Who is there and what each can carry and carries: workers with a warm model, relays with listeners.

Each process says so several times within its time to live. The names lie in a set, the reports under keys that expire:
a name without a report is a process that died, and whoever reads removes it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from redis.asyncio import Redis

from storage.redis import RELAYS, WORKERS, relay_key, translated, worker_key

WORKER_TTL_MS = 3000
RELAY_TTL_MS = 3000
_READ_LIMIT = 1000
_READERS: dict[str, Callable[[Any], Any]] = {"int": int, "float": float}

Report = TypeVar("Report", "WorkerLoad", "RelayDemand")


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """What a worker says of itself with every sign of life.

    A stream is one listener who is spoken to without a pause: a second of audio a second. Whole streams, because a
    share of one listener cannot be served.
    """

    capacity: int
    """How many streams it holds at real time with the first audio in time, measured; relays give it one at least."""

    active: int
    """How many streams have sentences with it now."""

    busy: float
    """The share of the last second in which it computed, 0 to 1."""


@dataclass(frozen=True, slots=True)
class RelayDemand:
    """What a relay says of its listeners with every sign of life."""

    speaking: int
    """Contexts whose listener hears, or waits for, audio now."""

    conversations: int
    """Contexts and connections that spoke lately, and may do so again at any moment."""

    late: int
    """How often within the last seconds its listeners ran dry, or waited too long for the first audio."""


async def announce_worker(redis: Redis, worker: str, load: WorkerLoad | None = None) -> None:
    """Say that this worker's model is warm, and what it carries (None: not measured); holds for WORKER_TTL_MS."""
    await _announce(redis, WORKERS, worker, worker_key(worker), _encode(load), WORKER_TTL_MS)


async def withdraw_worker(redis: Redis, worker: str) -> None:
    """Say that this worker takes no more jobs."""
    await _withdraw(redis, WORKERS, worker, worker_key(worker))


async def read_workers(redis: Redis) -> dict[str, WorkerLoad | None]:
    """The workers that are there by name (a thousand at most); None for one that reports nothing it can be held to."""
    return await _read(redis, WORKERS, worker_key, WorkerLoad)


async def announce_relay(redis: Redis, relay: str, demand: RelayDemand) -> None:
    """Say what this relay's listeners ask for; holds for RELAY_TTL_MS."""
    await _announce(redis, RELAYS, relay, relay_key(relay), _encode(demand), RELAY_TTL_MS)


async def withdraw_relay(redis: Redis, relay: str) -> None:
    """Say that this relay has no listeners any more."""
    await _withdraw(redis, RELAYS, relay, relay_key(relay))


async def read_relays(redis: Redis) -> dict[str, RelayDemand]:
    """The relays that are there by name, a thousand at most."""
    found = await _read(redis, RELAYS, relay_key, RelayDemand)
    return {name: demand for name, demand in found.items() if demand is not None}


async def count_workers(redis: Redis) -> int:
    """How many workers are there (counted up to a thousand)."""
    return len(await read_workers(redis))


async def _announce(redis: Redis, index: str, name: str, key: str, report: str, ttl_ms: int) -> None:
    async with translated(), redis.pipeline(transaction=True) as pipeline:
        pipeline.sadd(index, name)
        pipeline.set(key, report, px=ttl_ms)
        await pipeline.execute()


async def _withdraw(redis: Redis, index: str, name: str, key: str) -> None:
    async with translated(), redis.pipeline(transaction=True) as pipeline:
        pipeline.srem(index, name)
        pipeline.delete(key)
        await pipeline.execute()


async def _read(redis: Redis, index: str, key: Callable[[str], str], kind: type[Report]) -> dict[str, Report | None]:
    async with translated():
        members: Any = await redis.smembers(index)
        names = sorted(member.decode() for member in members)[:_READ_LIMIT]
        if not names:
            return {}
        reports: Any = await redis.mget([key(name) for name in names])
        found = dict(zip(names, reports, strict=True))
        if gone := [name for name, report in found.items() if report is None]:
            await redis.srem(index, *gone)
    return {name: _decode(kind, report) for name, report in found.items() if report is not None}


def _encode(report: WorkerLoad | RelayDemand | None) -> str:
    return json.dumps(asdict(report) if report is not None else {})


def _decode(kind: type[Report], raw: bytes) -> Report | None:
    """None for a report of another release, which may have other fields."""
    try:
        values = json.loads(raw)
        return kind(**{field.name: _READERS[str(field.type)](values[field.name]) for field in fields(kind)})
    except (ValueError, KeyError, TypeError):
        return None
