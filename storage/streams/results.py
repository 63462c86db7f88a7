"""The stream of results of one relay process: workers add, the relay's one blocking reader takes.

The stream lives as long as its relay says so (its time to live is renewed with every sign of life) and workers add only
to a stream that exists, so a relay's death stops the work for it within that time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from storage.errors import MalformedEntry
from storage.redis import (
    BLOCK_MS,
    CONSUMER_GROUP,
    JOBS,
    cancelled_key,
    results_key,
    silenced_key,
    translated,
)
from storage.streams.wire import Job, Result, decode_result, encode

MAX_LENGTH = 8192
"""About 30 MB of chunks (45 with mel frames), many seconds ahead of any reader that lives."""
_READ_COUNT = 256
TOMBSTONE_TTL_S = 120
_FLUSH_LIMIT = 64


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a worker learns when it has published: whether anybody still wants the rest."""

    relay_gone: bool
    cancelled: bool
    voice_silenced: bool

    @property
    def stop(self) -> bool:
        """Whether to stop working on the job."""
        return self.relay_gone or self.cancelled or self.voice_silenced


@dataclass(frozen=True, slots=True)
class _Posting:
    """What one job has to say or to ask, and who waits for the verdict."""

    job: Job
    result: Result | None
    acknowledge: bytes | None
    verdict: asyncio.Future[Verdict]


class ResultPublisher:
    """The worker's end: publishes, acknowledges and asks, for all jobs that have something to say in one round trip."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._waiting: deque[_Posting] = deque()
        self._posting: asyncio.Task[None] | None = None

    async def publish(self, job: Job, result: Result, *, acknowledge: bytes | None) -> Verdict:
        """Add a result to the relay's stream; with an entry to `acknowledge`, both happen or neither."""
        return await self._enqueue(job, result, acknowledge)

    async def ask(self, job: Job) -> Verdict:
        """Whether the job is still wanted, before any work is put into it."""
        return await self._enqueue(job, None, None)

    async def _enqueue(self, job: Job, result: Result | None, acknowledge: bytes | None) -> Verdict:
        verdict: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Posting(job, result, acknowledge, verdict))
        if self._posting is None or self._posting.done():
            self._posting = asyncio.create_task(self._post())
        return await verdict

    async def _post(self) -> None:
        """Send what waits, in bundles; what comes meanwhile makes the next one."""
        while self._waiting:
            bundle = [self._waiting.popleft() for _ in range(min(len(self._waiting), _FLUSH_LIMIT))]
            try:
                replies = await self._send(bundle)
            except Exception as error:
                _answer(bundle, [error] * len(bundle))
            else:
                _answer(bundle, replies)

    async def _send(self, bundle: Sequence[_Posting]) -> list[Verdict | Exception]:
        async with translated(), self._redis.pipeline(transaction=True) as pipeline:
            for posting in bundle:
                _command(pipeline, posting)
            replies: Any = await pipeline.execute(raise_on_error=False)
        verdicts: list[Verdict | Exception] = []
        for posting in bundle:
            count = 3 if posting.acknowledge is None else 4
            verdicts.append(await _judge(posting, replies[:count]))
            replies = replies[count:]
        return verdicts


def _command(pipeline: Any, posting: _Posting) -> None:
    job = posting.job
    if posting.result is None:
        pipeline.exists(results_key(job.relay))
    else:
        entry = encode(posting.result)
        pipeline.xadd(results_key(job.relay), entry, maxlen=MAX_LENGTH, approximate=True, nomkstream=True)
    if posting.acknowledge is not None:
        pipeline.xack(JOBS, CONSUMER_GROUP, posting.acknowledge)
    pipeline.exists(cancelled_key(job.context))
    pipeline.exists(silenced_key(job.voice))


async def _judge(posting: _Posting, replies: Sequence[Any]) -> Verdict | Exception:
    try:
        async with translated():
            for reply in replies:
                if isinstance(reply, Exception):
                    raise reply
    except Exception as error:
        return error
    # XADD without a stream to add to answers nil, EXISTS answers 0.
    return Verdict(not replies[0], bool(replies[-2]), bool(replies[-1]))


def _answer(bundle: Sequence[_Posting], outcomes: Sequence[Verdict | Exception]) -> None:
    for posting, outcome in zip(bundle, outcomes, strict=True):
        if posting.verdict.done():
            continue
        if isinstance(outcome, Exception):
            posting.verdict.set_exception(outcome)
        else:
            posting.verdict.set_result(outcome)


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
