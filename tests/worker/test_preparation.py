"""worker.preparation."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from worker.preparation import Preparation


@asynccontextmanager
async def _serving(threads: int) -> AsyncIterator[Preparation]:
    preparation = Preparation(threads)
    serve = asyncio.create_task(preparation.serve())
    try:
        yield preparation
    finally:
        serve.cancel()
        await asyncio.gather(serve, return_exceptions=True)


async def test_the_most_urgent_piece_goes_first() -> None:
    """While the one thread is busy the pieces wait in the order of their deadlines, equals in the order they came."""
    started, release = threading.Event(), threading.Event()
    done: list[str] = []

    def block() -> None:
        started.set()
        release.wait(10)

    async with _serving(1) as preparation:
        first = asyncio.create_task(preparation.run(0, block))
        await asyncio.to_thread(started.wait, 10)
        pieces = [(300, "late"), (100, "soon"), (200, "a"), (200, "b")]
        rest = [asyncio.create_task(preparation.run(deadline, partial(done.append, name))) for deadline, name in pieces]
        await asyncio.sleep(0)
        release.set()
        await asyncio.gather(first, *rest)
    assert done == ["soon", "a", "b", "late"]


async def test_pieces_run_side_by_side_on_as_many_threads_as_asked_for() -> None:
    """Two pieces that wait for each other both finish on two threads."""
    barrier = threading.Barrier(2)
    async with _serving(2) as preparation:
        await asyncio.wait_for(asyncio.gather(*(preparation.run(0, lambda: barrier.wait(10)) for _ in range(2))), 20)


async def test_what_a_piece_raises_reaches_its_caller_and_nobody_else() -> None:
    """A broken piece does not take its thread with it."""

    def fail() -> None:
        raise ValueError("broken")

    async with _serving(1) as preparation:
        with pytest.raises(ValueError, match="broken"):
            await preparation.run(0, fail)
        assert await preparation.run(0, lambda: 7) == 7


async def test_a_piece_whose_caller_is_gone_is_not_begun() -> None:
    """Cancelling a job takes its waiting piece out of the queue."""
    started, release = threading.Event(), threading.Event()
    done: list[int] = []

    def block() -> None:
        started.set()
        release.wait(10)

    async with _serving(1) as preparation:
        first = asyncio.create_task(preparation.run(0, block))
        await asyncio.to_thread(started.wait, 10)
        gone = asyncio.create_task(preparation.run(1, lambda: done.append(1)))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        release.set()
        await first
        assert await preparation.run(2, lambda: 7) == 7
    assert done == []
