"""The worker's end of the job stream: take, claim from the dead, keep what is under way, stop in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

import structlog
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from storage.errors import ServerUnavailable
from storage.redis import BLOCK_MS
from storage.streams.broadcasts import Silence, Silences, acknowledge_silence
from storage.streams.jobs import Delivery, JobStream
from storage.streams.presence import WorkerLoad, announce_worker, withdraw_worker
from worker import metrics
from worker.speaking import Speaking

log = structlog.get_logger()

HEARTBEAT_S = 0.4
RETRY_S = 0.25
DRAIN_DEADLINE_S = 10.0
_HEARTBEATS_PER_TRIM = 25


class Consumer:
    """Holds at most `slots` jobs; a slot is free again when its job was acknowledged or given up."""

    def __init__(
        self,
        name: str,
        redis: Redis,
        jobs: JobStream,
        speaking: Speaking,
        load: Callable[[], WorkerLoad],
        *,
        slots: int,
        claim_after_ms: int,
    ) -> None:
        self._name = name
        self._redis = redis
        self._jobs = jobs
        self._speaking = speaking
        self._load = load
        self._slots = slots
        self._claim_after_ms = claim_after_ms
        self._active: dict[bytes, asyncio.Task[None]] = {}
        self._silences: set[asyncio.Task[None]] = set()
        self._slot_freed = asyncio.Event()
        self._next_claim = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then finish what is under way."""
        taking = asyncio.create_task(self._repeat(self._take))
        heartbeat = asyncio.create_task(self._repeat(self._beat))
        obeying = asyncio.create_task(self._repeat(self._obey))
        stopping = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait({taking, heartbeat, obeying, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await _cancel([taking, stopping])
            await self._drain()
            await _cancel([heartbeat, obeying, *self._silences])
            await self._leave()

    async def _repeat(self, step: Callable[[], Awaitable[None]]) -> None:
        """Do the step for ever; when Redis is away or was emptied, wait, and make the group again."""
        broken = False
        while True:
            try:
                await step()
                broken = False
            except (ServerUnavailable, ResponseError) as error:
                if not broken:
                    log.warning("redis trouble", reason=str(error))
                broken = True
                await asyncio.sleep(RETRY_S)
                await self._restore()

    async def _restore(self) -> None:
        self._speaking.forget_voices()
        try:
            await self._jobs.ensure_group()
        except ServerUnavailable:
            return

    async def _take(self) -> None:
        """Fill the free slots: now and then with what a dead worker held, else with new jobs."""
        loop = asyncio.get_running_loop()
        free = await self._wait_for_slot()
        if loop.time() >= self._next_claim:
            self._next_claim = loop.time() + self._claim_after_ms / 2000
            for delivery in await self._jobs.claim(self._name, self._claim_after_ms, free):
                log.info("claimed a job", entry=delivery.entry.decode())
                self._begin(delivery, claimed=True)
            free = await self._wait_for_slot()
        block_ms = min(BLOCK_MS, max(1, int(1000 * (self._next_claim - loop.time()))))
        for delivery in await self._jobs.take(self._name, free, block_ms):
            self._begin(delivery)

    async def _beat(self) -> None:
        for beat in range(_HEARTBEATS_PER_TRIM):
            await announce_worker(self._redis, self._name, self._load())
            await self._jobs.keep(self._name, list(self._active))
            if beat == 0:
                await self._jobs.trim()
            depth = await self._jobs.depth()
            metrics.QUEUE_LAG.set(depth.waiting)
            metrics.QUEUE_PENDING.set(depth.pending)
            await asyncio.sleep(HEARTBEAT_S)

    async def _obey(self) -> None:
        """Hear of silenced voices. Whatever was missed before it listened is looked up again."""
        async with aclosing(Silences(self._redis).listen()) as silences:
            async for silence in silences:
                if silence is None:
                    self._speaking.forget_voices()
                else:
                    task = asyncio.create_task(self._fall_silent(silence))
                    self._silences.add(task)
                    task.add_done_callback(self._silences.discard)

    async def _fall_silent(self, silence: Silence) -> None:
        """Obey, and say so only when it is done: whoever deletes the voice counts on it."""
        ended = await self._speaking.revoke(silence.voice)
        if not ended:
            log.warning("a silenced voice is still being spoken with", voice=str(silence.voice))
            return
        try:
            await acknowledge_silence(self._redis, silence, self._name)
        except ServerUnavailable as error:
            log.warning("a silence was obeyed and not acknowledged", voice=str(silence.voice), reason=str(error))

    async def _wait_for_slot(self) -> int:
        while len(self._active) >= self._slots:
            self._slot_freed.clear()
            await self._slot_freed.wait()
        return self._slots - len(self._active)

    def _begin(self, delivery: Delivery, *, claimed: bool = False) -> None:
        if delivery.entry in self._active:
            return
        task = asyncio.create_task(self._speaking.speak(delivery, claimed=claimed))
        self._active[delivery.entry] = task
        metrics.ACTIVE.set(len(self._active))
        task.add_done_callback(lambda done: self._finish(delivery.entry, done))

    def _finish(self, entry: bytes, task: asyncio.Task[None]) -> None:
        self._active.pop(entry, None)
        metrics.ACTIVE.set(len(self._active))
        self._slot_freed.set()
        if not task.cancelled() and task.exception() is not None:
            log.error("a job's task broke", exc_info=task.exception())

    async def _drain(self) -> None:
        """Finish what can be finished soon; what cannot stays pending, and another worker claims it."""
        self._speaking.hurry()
        if self._active:
            await asyncio.wait(list(self._active.values()), timeout=DRAIN_DEADLINE_S)
        await _cancel(list(self._active.values()))

    async def _leave(self) -> None:
        try:
            await withdraw_worker(self._redis, self._name)
            await self._jobs.leave(self._name)
        except (ServerUnavailable, ResponseError) as error:
            log.warning("could not leave the group", reason=str(error))


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
