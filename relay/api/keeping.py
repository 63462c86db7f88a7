"""Answers that are kept for a moment, so that whoever asks without a key cannot keep the database busy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class Kept(Generic[Answer]):
    """One answer, looked for once by all who ask at the same time."""

    def __init__(self, ttl_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._ttl_s = ttl_s
        self._clock = clock
        self._lock = asyncio.Lock()
        self._found: tuple[float, Answer] | None = None

    async def get(self, find: Callable[[], Awaitable[Answer]]) -> Answer:
        """The answer that was found last, or a new one where that is too old; raises what `find` raises."""
        async with self._lock:
            if self._found is None or self._found[0] <= self._clock():
                answer = await find()
                self._found = self._clock() + self._ttl_s, answer
            return self._found[1]
