"""The relay's end of the streams: one reader of results for all connections, one sign of life, one way for jobs."""

from __future__ import annotations

import asyncio
from typing import Protocol

import structlog
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from relay import metrics
from relay.cancellation import is_cancelled
from relay.entrance.admission import Admission
from storage.errors import ServerUnavailable
from storage.streams.jobs import JobStream
from storage.streams.presence import announce_relay, read_relays, read_workers, withdraw_relay
from storage.streams.results import ResultReader, cancel_context
from storage.streams.wire import Job, Result

log = structlog.get_logger()

TICK_S = 0.25
RETRY_S = 0.1
_TICKS_PER_BEAT = 2
_DRAIN_STEP_S = 0.02
_LAST_WORDS_S = 1.0
"""How long those whose speech was cut off have to read that it was."""


class Listener(Protocol):
    """A connection, as the hub sees it."""

    def receive(self, result: Result) -> None:
        """Take a result of one of the connection's contexts; must not block."""

    def tick(self) -> None:
        """Let time pass."""

    def resubmit(self) -> None:
        """Hand out again what is under way."""

    def drain(self, within_s: float) -> None:
        """The relay is going to stop within this time, or now; must not block."""


class Hub:
    """Carries jobs out and results back for every connection of one relay process."""

    def __init__(self, redis: Redis, reader_redis: Redis, relay: str, ttl_ms: int, admission: Admission) -> None:
        self._redis = redis
        self._jobs = JobStream(redis)
        self._keeper = ResultReader(reader_redis, relay, ttl_ms)
        self.relay = relay
        self.admission = admission
        self._listeners: set[Listener] = set()
        self._routes: dict[str, Listener] = {}
        self._broken = False
        self.draining = False
        """Whether the relay is going to stop and lets nobody in."""

    def join(self, listener: Listener) -> None:
        """A connection begins."""
        self._listeners.add(listener)
        metrics.CONNECTIONS.set(len(self._listeners))

    def leave(self, listener: Listener) -> None:
        """A connection ends; nothing reaches it any more."""
        self._listeners.discard(listener)
        self._routes = {key: other for key, other in self._routes.items() if other is not listener}
        metrics.CONNECTIONS.set(len(self._listeners))

    def route(self, listener: Listener, keys: frozenset[str]) -> None:
        """These, and no others, are the contexts whose results the connection gets."""
        stale = [key for key, other in self._routes.items() if other is listener and key not in keys]
        for key in stale:
            del self._routes[key]
        for key in keys:
            self._routes[key] = listener

    async def drain(self, within_s: float) -> None:
        """Let the listeners finish and leave, for so long at most."""
        self.draining = True
        for patience_s, wait_s in ((within_s, within_s), (0.0, _LAST_WORDS_S)):
            for listener in list(self._listeners):
                listener.drain(patience_s)
            loop = asyncio.get_running_loop()
            until = loop.time() + wait_s
            # They leave one by one, each by its own end.
            while self._listeners and loop.time() < until:  # noqa: ASYNC110
                await asyncio.sleep(_DRAIN_STEP_S)

    async def submit(self, job: Job) -> None:
        """Hand a job to the workers; when Redis is away it is handed out again once it is back."""
        metrics.JOBS.inc()
        try:
            await self._jobs.submit(job)
        except ServerUnavailable as error:
            self._note_loss(error)

    async def bury(self, key: str) -> None:
        """Put up a context's tombstone; without it a worker only wastes a sentence."""
        try:
            await cancel_context(self._redis, key)
        except ServerUnavailable as error:
            log.warning("no tombstone", reason=str(error))

    async def run(self) -> None:
        """Read results and let time pass until cancelled; then remove the relay's stream."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._read())
                group.create_task(self._tick())
        finally:
            try:
                async with asyncio.timeout(RETRY_S * 10):
                    await withdraw_relay(self._redis, self.relay)
                    await self._keeper.close()
            except (ServerUnavailable, TimeoutError) as error:
                log.warning("the result stream stays until it expires", reason=str(error))

    async def _read(self) -> None:
        while not is_cancelled():
            try:
                async for result in self._keeper.read():
                    listener = self._routes.get(result.context)
                    if listener is not None:
                        listener.receive(result)
            except (ServerUnavailable, ResponseError) as error:
                self._note_loss(error)
                await asyncio.sleep(RETRY_S)

    async def _tick(self) -> None:
        ticks = 0
        while not is_cancelled():
            if ticks % _TICKS_PER_BEAT == 0:
                await self._beat()
            for listener in list(self._listeners):
                listener.tick()
            ticks += 1
            await asyncio.sleep(TICK_S)

    async def _beat(self) -> None:
        """Show the workers that somebody listens; after a loss, have everything under way spoken again."""
        try:
            alive = await self._keeper.keep_alive()
            await self._look_around()
        except (ServerUnavailable, ResponseError) as error:
            self._note_loss(error)
            return
        if self._broken or not alive:
            log.info("result stream", state="kept" if alive else "new")
            self._broken = False
            for listener in list(self._listeners):
                listener.resubmit()

    async def _look_around(self) -> None:
        """Tell the other relays what is asked for here, and see what they say, and what the workers do."""
        mine = self.admission.demand()
        await announce_relay(self._redis, self.relay, mine)
        relays = await read_relays(self._redis)
        workers = await read_workers(self._redis)
        depth = await self._jobs.depth()
        self.admission.observe(workers, relays, mine, depth.waiting)
        metrics.QUEUE_LAG.set(depth.waiting)

    def _note_loss(self, error: Exception) -> None:
        """Remember that something may be lost; one line in the log for each time Redis goes away."""
        if not self._broken:
            log.warning("redis is away", reason=str(error))
        self._broken = True
