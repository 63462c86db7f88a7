"""What the stream of jobs and the streams of results still hold of a voice, and how it is taken out.

Entries hold text, and cannot be changed. Taking one out must leave the group's `lag` a number, on which autoscaling
stands: Redis gives it up while a deleted entry lies at or above the group's last delivered id (Valkey,
`streamRangeHasTombstones`). So an entry goes by XDEL only below that id and acknowledged; at it, by a trim through it
once nothing older is pending; above it, not before it was delivered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from storage.errors import MalformedEntry
from storage.redis import CONSUMER_GROUP, JOBS, results_key, translated
from storage.streams.jobs import successor
from storage.streams.presence import count_workers
from storage.streams.wire import Failure, Fields, decode_job, encode

CONSUMER = "erasure"
"""Who takes what waits when there is no worker to take it."""
_PAGE = 256
_ENTRIES_LIMIT = 65_536
_POLL_S = 0.05
_GONE = "the voice cannot be spoken with: it was deleted"


@dataclass(frozen=True, slots=True)
class Stripped:
    """How many entries were taken out, and how many are left because something else has to end first."""

    count: int
    left: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What can be done now with the entries that name the voice."""

    remove: tuple[bytes, ...] = ()
    """Delivered, acknowledged, and below the last delivered id."""
    trim_through: bytes | None = None
    """The last delivered entry, when it names the voice and nothing is pending."""
    held: tuple[bytes, ...] = ()
    """With a worker, which is about to end them."""
    waiting: tuple[bytes, ...] = ()
    """Not delivered yet."""
    blocked: int = 0
    """1 when the last delivered entry names the voice and older ones are pending."""

    @property
    def left(self) -> int:
        """How many stay after this plan was carried out."""
        return len(self.held) + len(self.waiting) + self.blocked


@dataclass(frozen=True, slots=True)
class _Found:
    plan: Plan
    contexts: Mapping[str, frozenset[bytes]]
    """By relay, the contexts of the entries that name the voice."""


def plan_stripping(named: Iterable[bytes], pending: frozenset[bytes], last_delivered: bytes) -> Plan:
    """Sort the entries that name a voice by what may be done with them."""
    last = _order(last_delivered)
    groups: dict[str, list[bytes]] = {"remove": [], "held": [], "waiting": [], "last": []}
    for entry in named:
        order = _order(entry)
        kind = "held" if entry in pending else "waiting" if order > last else "last" if order == last else "remove"
        groups[kind].append(entry)
    at_last = groups["last"][0] if groups["last"] else None
    return Plan(
        remove=tuple(groups["remove"]),
        trim_through=at_last if not pending else None,
        held=tuple(groups["held"]),
        waiting=tuple(groups["waiting"]),
        blocked=int(at_last is not None and bool(pending)),
    )


async def strip_jobs(redis: Redis, voice: UUID, within_s: float) -> Stripped:
    """Take out every job that names the voice, and the audio of its contexts.

    The voice is silenced, so workers end its jobs themselves, and tell the listeners; after `within_s` what they still
    hold is ended for them. Without any worker, what waits is taken from the queue; other voices' jobs among them are
    claimed by the next worker like those of a dead one. Raises ServerUnavailable.
    """
    loop = asyncio.get_running_loop()
    end, count = loop.time() + within_s, 0
    while True:
        found = await _look(redis, voice)
        count += await _carry_out(redis, found)
        if not found.plan.left:
            return Stripped(count, 0)
        if loop.time() >= end:
            break
        await asyncio.sleep(_POLL_S)
    await _end_for_them(redis, found.plan)
    found = await _look(redis, voice)
    return Stripped(count + await _carry_out(redis, found), found.plan.left)


async def _look(redis: Redis, voice: UUID) -> _Found:
    async with translated():
        named: list[bytes] = []
        contexts: dict[str, set[bytes]] = {}
        async for entry, fields in _pages(redis, JOBS):
            if fields.get(b"voice") == str(voice).encode():
                named.append(entry)
                contexts.setdefault(fields.get(b"relay", b"").decode(), set()).add(fields.get(b"context", b""))
        if not named:
            return _Found(Plan(), {})
        groups: Any = await _groups(redis)
        last = next((group["last-delivered-id"] for group in groups), b"0-0")
        plan = plan_stripping(named, await _pending(redis), last)
    return _Found(plan, {relay: frozenset(found) for relay, found in contexts.items()})


async def _carry_out(redis: Redis, found: _Found) -> int:
    plan, count = found.plan, 0
    async with translated():
        if plan.remove:
            count += await redis.xdel(JOBS, *plan.remove)
        if plan.trim_through is not None:
            await redis.xtrim(JOBS, minid=successor(plan.trim_through), approximate=False)
            count += 1
        for relay, contexts in found.contexts.items():
            count += await _strip_results(redis, relay, contexts)
    return count


async def _strip_results(redis: Redis, relay: str, contexts: frozenset[bytes]) -> int:
    """Take out audio that the relay has not read yet; what tells a listener that it ends stays."""
    key, count = results_key(relay), 0
    async for entry, fields in _pages(redis, key):
        if fields.get(b"kind") == b"chunk" and fields.get(b"context") in contexts:
            count += await redis.xdel(key, entry)
    return count


async def _end_for_them(redis: Redis, plan: Plan) -> None:
    if plan.waiting and not await count_workers(redis):
        async with translated():
            await redis.xreadgroup(CONSUMER_GROUP, CONSUMER, {JOBS: ">"}, count=_PAGE)
    async with translated():
        pending = await _pending(redis)
        for entry in (*plan.held, *plan.waiting):
            if entry in pending:
                await _fail(redis, entry)


async def _fail(redis: Redis, entry: bytes) -> None:
    """Acknowledge a job for whoever holds it, and tell its relay."""
    rows: Any = await redis.xrange(JOBS, min=entry, max=entry)
    async with redis.pipeline(transaction=True) as pipeline:
        if rows and (failure := _read_failure(rows[0][1])) is not None:
            relay, message = failure
            pipeline.xadd(results_key(relay), encode(message), nomkstream=True)  # type: ignore[arg-type]
        pipeline.xack(JOBS, CONSUMER_GROUP, entry)
        await pipeline.execute()


def _read_failure(fields: Fields) -> tuple[str, Failure] | None:
    try:
        job = decode_job(fields)
    except MalformedEntry:
        return None
    return job.relay, Failure(job.context, job.sentence, "voice_unavailable", _GONE, retryable=False)


async def _pages(redis: Redis, key: str) -> Any:
    after, seen = b"0-0", 0
    while seen < _ENTRIES_LIMIT:
        rows: Any = await redis.xrange(key, min=b"(" + after, max="+", count=_PAGE)
        for entry, fields in rows:
            yield entry, fields
        if len(rows) < _PAGE:
            return
        after, seen = rows[-1][0], seen + len(rows)


async def _groups(redis: Redis) -> Any:
    try:
        return await redis.xinfo_groups(JOBS)
    except ResponseError:
        return []


async def _pending(redis: Redis) -> frozenset[bytes]:
    try:
        rows: Any = await redis.xpending_range(JOBS, CONSUMER_GROUP, min="-", max="+", count=_ENTRIES_LIMIT)
    except ResponseError:
        return frozenset()
    return frozenset(row["message_id"] for row in rows)


def _order(entry: bytes) -> tuple[int, int]:
    milliseconds, _, sequence = entry.partition(b"-")
    return int(milliseconds), int(sequence)
