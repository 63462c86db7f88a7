"""What a conversation has to send to the workers, one thing after the other, while nothing waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from relay.cancellation import end
from relay.speaking.hub import Hub
from storage.streams.wire import Job

log = structlog.get_logger()

CAPACITY = 1024


class Errands:
    """Jobs to submit, and keys of contexts to bury; `broken` is called when that cannot go on."""

    def __init__(self, hub: Hub, broken: Callable[[], None]) -> None:
        self._hub = hub
        self._broken = broken
        self._waiting: asyncio.Queue[Job | str] = asyncio.Queue(CAPACITY)
        self._running: asyncio.Task[None] | None = None

    def put(self, errand: Job | str) -> None:
        """Raises asyncio.QueueFull when there are too many."""
        self._waiting.put_nowait(errand)

    def begin(self) -> None:
        """From now on they are done."""
        self._running = asyncio.create_task(self._run())

    async def end(self) -> None:
        """Those that wait are forgotten."""
        if self._running is not None:
            await end([self._running])

    async def _run(self) -> None:
        try:
            while True:
                errand = await self._waiting.get()
                if isinstance(errand, Job):
                    await self._hub.submit(errand)
                else:
                    await self._hub.bury(errand)
        except Exception:
            log.exception("a connection broke")
            self._broken()
