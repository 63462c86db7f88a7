"""The stream of jobs: relays add, a consumer group of workers takes, a dead worker's entries are claimed by another.

Entries that were acknowledged are trimmed by id, never before they are acknowledged: that would turn the group's `lag`
into nil, and autoscaling with it (Redis, "XINFO GROUPS"; `storage.streams.job_traces` says when one may go alone).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from storage.errors import MalformedEntry
from storage.redis import CONSUMER_GROUP, DEAD_LETTER, JOBS, results_key, translated
from storage.streams.wire import Failure, Fields, Job, decode_job, encode

MAX_DELIVERIES = 4
DEAD_LETTER_LENGTH = 1000
_PENDING_LIMIT = 1024
_FORGET_CONSUMER_MS = 60_000
_BURIED = "the sentence could not be spoken in several attempts; leave it out or change it"


@dataclass(frozen=True, slots=True)
class Delivery:
    """A job as it was handed to a consumer; `entry` acknowledges it."""

    entry: bytes
    job: Job

    @property
    def added_at(self) -> float:
        """When the job was added, in Unix seconds by the clock of Redis, which is the first half of an entry's id."""
        return int(self.entry.split(b"-")[0]) / 1000


def successor(entry: bytes) -> bytes:
    """The smallest id after an entry's."""
    milliseconds, _, sequence = entry.partition(b"-")
    return b"%b-%d" % (milliseconds, int(sequence) + 1)


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """How much work there is."""

    waiting: int
    """Jobs that no worker has taken."""
    pending: int
    """Jobs that a worker has taken and not acknowledged."""


class JobStream:
    """One client's view of the stream of jobs."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._claim_from: bytes | str = "0-0"

    async def ensure_group(self) -> None:
        """Make the stream and its consumer group, if they are not there."""
        try:
            async with translated():
                await self._redis.xgroup_create(JOBS, CONSUMER_GROUP, id="0", mkstream=True)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    async def submit(self, job: Job) -> None:
        """Add a job; raises ServerUnavailable."""
        async with translated():
            await self._redis.xadd(JOBS, encode(job))  # type: ignore[arg-type]

    async def depth(self) -> QueueDepth:
        """How many jobs wait and how many are being worked on."""
        async with translated():
            groups = await self._xinfo_groups()
        for group in groups:
            if group["name"] in (CONSUMER_GROUP, CONSUMER_GROUP.encode()):
                return QueueDepth(waiting=group.get("lag") or 0, pending=group["pending"])
        return QueueDepth(0, 0)

    async def take(self, consumer: str, count: int, block_ms: int) -> list[Delivery]:
        """Wait up to `block_ms` for at most `count` new jobs."""
        async with translated():
            reply: Any = await self._redis.xreadgroup(
                CONSUMER_GROUP, consumer, {JOBS: ">"}, count=count, block=block_ms
            )
        return await self._read(reply[0][1] if reply else [])

    async def claim(self, consumer: str, idle_ms: int, count: int) -> list[Delivery]:
        """Take over at most `count` jobs whose worker has been silent about them for `idle_ms`.

        A job that was delivered MAX_DELIVERIES times goes to the dead letter instead: it kills its workers.
        """
        async with translated():
            reply: Any = await self._redis.xautoclaim(
                JOBS, CONSUMER_GROUP, consumer, idle_ms, start_id=self._claim_from, count=count
            )
            self._claim_from, claimed = reply[0], reply[1]
            if not claimed:
                return []
            spent = await self._spent(consumer, claimed[0][0], claimed[-1][0])
            for entry in spent:
                await self._bury(entry)
        return await self._read([(entry, fields) for entry, fields in claimed if entry not in spent])

    async def keep(self, consumer: str, entries: Sequence[bytes]) -> None:
        """Say that these jobs are being worked on: their idle time starts again, their count of deliveries stays."""
        if entries:
            async with translated():
                await self._redis.xclaim(JOBS, CONSUMER_GROUP, consumer, 0, list(entries), justid=True)

    async def acknowledge(self, entries: Sequence[bytes]) -> None:
        """These jobs need no more work."""
        if entries:
            async with translated():
                await self._redis.xack(JOBS, CONSUMER_GROUP, *entries)

    async def trim(self) -> None:
        """Drop the entries below the oldest that is still waiting or pending, and consumers that died holding nothing.

        A living one that was only quiet is made again by its next read.
        """
        async with translated():
            groups = await self._xinfo_groups()
            if not groups:
                return
            pending = await self._redis.xpending(JOBS, CONSUMER_GROUP)
            # Through the last one: it holds a text, and may stay the last one for days.
            oldest = pending["min"] or successor(groups[0]["last-delivered-id"])
            await self._redis.xtrim(JOBS, minid=oldest, approximate=False)
            consumers: Any = await self._redis.xinfo_consumers(JOBS, CONSUMER_GROUP)
            for consumer in consumers:
                if not consumer["pending"] and consumer["idle"] > _FORGET_CONSUMER_MS:
                    await self._redis.xgroup_delconsumer(JOBS, CONSUMER_GROUP, consumer["name"])

    async def leave(self, consumer: str) -> None:
        """Remove a consumer that holds nothing, so that the group does not list every worker there ever was."""
        async with translated():
            held = await self._redis.xpending_range(
                JOBS, CONSUMER_GROUP, min="-", max="+", count=1, consumername=consumer
            )
            if not held:
                await self._redis.xgroup_delconsumer(JOBS, CONSUMER_GROUP, consumer)

    async def _spent(self, consumer: str, first: bytes, last: bytes) -> set[bytes]:
        """Which of a consumer's entries have been delivered too often."""
        rows: Any = await self._redis.xpending_range(
            JOBS, CONSUMER_GROUP, min=first, max=last, count=_PENDING_LIMIT, consumername=consumer
        )
        return {row["message_id"] for row in rows if row["times_delivered"] > MAX_DELIVERIES}

    async def _xinfo_groups(self) -> list[dict[str, Any]]:
        try:
            groups: list[dict[str, Any]] = await self._redis.xinfo_groups(JOBS)
        except ResponseError:
            return []
        return groups

    async def _read(self, entries: Sequence[tuple[bytes, Fields | None]]) -> list[Delivery]:
        deliveries = []
        for entry, fields in entries:
            try:
                deliveries.append(Delivery(entry, decode_job(fields or {})))
            except MalformedEntry:
                async with translated():
                    await self._bury(entry)
        return deliveries

    async def _bury(self, entry: bytes) -> None:
        """Move an entry that cannot be worked on to the dead letter, without its text, and tell its relay."""
        rows: Any = await self._redis.xrange(JOBS, min=entry, max=entry)
        fields: Fields = rows[0][1] if rows else {}
        kept = {b"entry": entry, **{key: value for key, value in fields.items() if key != b"text"}}
        async with self._redis.pipeline(transaction=True) as pipeline:
            pipeline.xadd(DEAD_LETTER, kept, maxlen=DEAD_LETTER_LENGTH)  # type: ignore[arg-type]
            with suppress(MalformedEntry):
                job = decode_job(fields)
                failure = Failure(job.context, job.sentence, "synthesis_failed", _BURIED, retryable=False)
                pipeline.xadd(results_key(job.relay), encode(failure), nomkstream=True)  # type: ignore[arg-type]
            pipeline.xack(JOBS, CONSUMER_GROUP, entry)
            await pipeline.execute()
