"""Cancellations that get lost: the client of Redis (redis-py 8.1 on Python 3.11) drops one that meets an arriving
reply now and then, and each that meets the making of its connection."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

_AGAIN_S = 0.1
_ATTEMPTS = 50


def is_cancelled() -> bool:
    """Whether the task is to end although nothing was raised."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks until they have ended, within five seconds; what they raise is nobody's concern any more."""
    left = set(tasks)
    for _ in range(_ATTEMPTS):
        for task in left:
            task.cancel()
        if left:
            done, left = await asyncio.wait(left, timeout=_AGAIN_S)
            await asyncio.gather(*done, return_exceptions=True)
