"""Ctrl-C and SIGTERM at any point: the first one ends the command in order, the next ones only make it hurry."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """Turns the first signal into KeyboardInterrupt, or into the cancellation of the coroutine that runs."""

    def __init__(self) -> None:
        self._seen = 0
        self._cancel: Callable[[], object] | None = None

    @property
    def hurry(self) -> bool:
        """Whether whoever waits has asked twice."""
        return self._seen > 1

    def install(self) -> None:
        """Takes the signals over, also where the shell had them ignored."""
        for number in _SIGNALS:
            signal.signal(number, self._handle)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine to its end. Raises KeyboardInterrupt after cancelling it, once it has cleaned up."""
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            task = loop.create_task(main)
            self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
            try:
                return loop.run_until_complete(task)
            except asyncio.CancelledError:
                raise KeyboardInterrupt from None
            finally:
                self._cancel = None

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self._seen += 1
        if self._seen > 1:
            return
        if self._cancel is None:
            raise KeyboardInterrupt
        self._cancel()
