"""Encoders that take no threads for themselves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_core() -> Iterator[None]:
    """For the first frame of an encoder: PyAV then puts a filter graph before it, with a thread for every core that the
    calling thread may use, up to sixteen; they would do nothing as long as it lives."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
