"""Runs a command's own work while its stack is kept alive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_PERIOD_S = 0.2
_CLEAN_UP_S = 5.0


async def run_watched(check: Callable[[], object], work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when `check` raises; `check` is called several times a second."""
    task = asyncio.create_task(work)
    try:
        while not task.done():
            check()
            await asyncio.wait({task}, timeout=_PERIOD_S)
        return task.result()
    finally:
        task.cancel()
        await asyncio.wait({task}, timeout=_CLEAN_UP_S)
