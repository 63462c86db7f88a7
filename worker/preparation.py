"""Who computes next: pieces of work in the order of their deadlines, on a few threads.

Earliest deadline first (Liu and Layland, 1973): a listener who is about to run dry goes before one
who has audio in store.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

Outcome = TypeVar("Outcome")


@dataclass(order=True, slots=True)
class _Piece:
    deadline_ms: int
    order: int
    work: Callable[[], Any] = field(compare=False)
    outcome: asyncio.Future[Any] = field(compare=False)


class Preparation:
    """Runs blocking work on `threads` threads; every caller has one piece in it at a time, so it is bounded by them."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="preparation")
        self._pieces: asyncio.PriorityQueue[_Piece] = asyncio.PriorityQueue()
        self._order = itertools.count()

    async def run(self, deadline_ms: int, work: Callable[[], Outcome]) -> Outcome:
        """Do the work when it is the most urgent, and return or raise what it does."""
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._pieces.put_nowait(_Piece(deadline_ms, next(self._order), work, outcome))
        return await outcome

    async def serve(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._threads):
                    group.create_task(self._serve_one())
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)

    async def _serve_one(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            piece = await self._pieces.get()
            if piece.outcome.cancelled():
                continue
            try:
                result = await loop.run_in_executor(self._pool, piece.work)
            except Exception as error:
                if not piece.outcome.cancelled():
                    piece.outcome.set_exception(error)
            else:
                if not piece.outcome.cancelled():
                    piece.outcome.set_result(result)
