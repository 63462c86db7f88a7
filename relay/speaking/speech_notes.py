"""What was spoken, on its way to the speech log: a bounded queue that nobody who speaks ever waits for."""

from __future__ import annotations

import asyncio

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from relay import metrics
from relay.cancellation import is_cancelled
from storage.errors import ServerUnavailable
from storage.streams.speech_log import Spoken, note_spoken

log = structlog.get_logger()

CAPACITY = 4096
"""Contexts; an outage of Redis is bridged for as many as end in it."""
RETRY_S = 0.5
LAST_FLUSH_S = 2.0


class SpeechNotes:
    """Takes what contexts have spoken and writes it to the speech log; `run` does the writing."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._waiting: asyncio.Queue[Spoken] = asyncio.Queue(CAPACITY)
        self._pending: Spoken | None = None
        self._broken = False

    def put(self, spoken: Spoken) -> None:
        """Note it; what there is no room for is counted and lost."""
        try:
            self._waiting.put_nowait(spoken)
        except asyncio.QueueFull:
            metrics.NOTES.labels("dropped").inc()

    async def run(self) -> None:
        """Write until cancelled; then write what is left, for LAST_FLUSH_S at most."""
        try:
            while not is_cancelled():
                await self._write_next()
        finally:
            await self._flush()

    async def _write_next(self) -> None:
        if self._pending is None:
            self._pending = await self._waiting.get()
        try:
            # What is written again because nobody knows whether it was counts once.
            await note_spoken(self._redis, self._pending)
        except (ServerUnavailable, RedisError) as error:
            if not self._broken:
                log.warning("the speech log waits", reason=str(error))
            self._broken = True
            await asyncio.sleep(RETRY_S)
            return
        self._pending, self._broken = None, False
        metrics.NOTES.labels("written").inc()

    async def _flush(self) -> None:
        try:
            async with asyncio.timeout(LAST_FLUSH_S):
                while self._pending is not None or not self._waiting.empty():
                    await self._write_next()
        except TimeoutError:
            lost = self._waiting.qsize() + (self._pending is not None)
            metrics.NOTES.labels("dropped").inc(lost)
            log.error("what was spoken is not on record", contexts=lost)
