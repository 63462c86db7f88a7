"""The stream of results of one relay process: workers add, the relay's one blocking reader takes.

The stream lives as long as its relay says so (its time to live is renewed with every sign of life) and workers add only
to a stream that exists, so a relay's death stops the work for it within that time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from storage.errors import MalformedEntry
from storage.redis import (
    BLOCK_MS,
    CONSUMER_GROUP,
    JOBS,
    cancelled_key,
    deleted_key,
    results_key,
    translated,
)
from storage.wire import Job, Result, decode_result, encode

MAX_LENGTH = 8192
"""About 30 MB of chunks, many seconds ahead of any reader that lives."""
_READ_COUNT = 256
TOMBSTONE_TTL_S = 120


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a worker learns when it has published: whether anybody still wants the rest."""

    relay_gone: bool
    cancelled: bool
    voice_deleted: bool

    @property
    def stop(self) -> bool:
        """Whether to stop working on the job."""
        return self.relay_gone or self.cancelled or self.voice_deleted


class ResultPublisher:
    """The worker's end: publishes, acknowledges and asks in one round trip."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def publish(self, job: Job, result: Result, *, acknowledge: bytes | None) -> Verdict:
        """Add a result to the relay's stream; with an entry to `acknowledge`, both happen or neither."""
        async with translated(), self._redis.pipeline(transaction=True) as pipeline:
            pipeline.xadd(
                results_key(job.relay),
                encode(result),  # type: ignore[arg-type]
                maxlen=MAX_LENGTH,
                approximate=True,
                nomkstream=True,
            )
            if acknowledge is not None:
                pipeline.xack(JOBS, CONSUMER_GROUP, acknowledge)
            pipeline.exists(cancelled_key(job.context))
            pipeline.exists(deleted_key(job.voice))
            replies = await pipeline.execute()
        return Verdict(replies[0] is None, bool(replies[-2]), bool(replies[-1]))

    async def ask(self, job: Job) -> Verdict:
        """Whether the job is still wanted, before any work is put into it."""
        async with translated(), self._redis.pipeline(transaction=False) as pipeline:
            pipeline.exists(results_key(job.relay))
            pipeline.exists(cancelled_key(job.context))
            pipeline.exists(deleted_key(job.voice))
            relay, cancelled, deleted = await pipeline.execute()
        return Verdict(not relay, bool(cancelled), bool(deleted))


class ResultReader:
    """The relay's end: one blocking reader on a connection of its own."""

    def __init__(self, redis: Redis, relay: str, ttl_ms: int) -> None:
        self._redis = redis
        self._key = results_key(relay)
        self._ttl_ms = ttl_ms
        self._last = b"0-0"

    async def keep_alive(self) -> bool:
        """Renew the stream's time to live and drop what was read; False when it had to be made anew.

        After False whatever was under way is lost, and the jobs have to be submitted again.
        """
        async with translated(), self._redis.pipeline(transaction=True) as pipeline:
            pipeline.pexpire(self._key, self._ttl_ms)
            pipeline.xtrim(self._key, minid=self._last, approximate=False)
            alive, _ = await pipeline.execute()
        if not alive:
            await self._make()
        return bool(alive)

    async def close(self) -> None:
        """Remove the stream: workers see at once that nobody listens."""
        async with translated():
            await self._redis.delete(self._key)

    async def read(self) -> AsyncIterator[Result]:
        """Wait up to BLOCK_MS for results and yield them in the order they were added."""
        async with translated():
            reply: Any = await self._redis.xread({self._key: self._last}, count=_READ_COUNT, block=BLOCK_MS)
        for entry, fields in reply[0][1] if reply else []:
            self._last = entry
            try:
                result = decode_result(fields)
            except MalformedEntry:
                continue
            yield result

    async def _make(self) -> None:
        # A stream cannot be empty and have a time to live from the start; this entry is no result and is skipped.
        async with translated(), self._redis.pipeline(transaction=True) as pipeline:
            pipeline.xadd(self._key, {"kind": "opened"}, maxlen=MAX_LENGTH)
            pipeline.pexpire(self._key, self._ttl_ms)
            await pipeline.execute()
        self._last = b"0-0"


async def cancel_context(redis: Redis, context: str) -> None:
    """Put up the tombstone of a context; it expires long after its last job has."""
    async with translated():
        await redis.set(cancelled_key(context), b"1", ex=TOMBSTONE_TTL_S)


async def bury_voice(redis: Redis, voice: object) -> None:
    """Put up the tombstone of a voice: within a chunk every worker stops speaking with it."""
    async with translated():
        await redis.set(deleted_key(voice), b"1", ex=TOMBSTONE_TTL_S)
