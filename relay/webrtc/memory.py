"""Memory that peers have left, handed back to the machine.

aiortc's objects hold each other in circles. Python looks for such circles among all old objects only when a quarter as
many new ones are old as there were before, which with all libraries loaded takes hundreds of peers, and then a tenth of
a second in which nobody is heard. So what was loaded is set aside, and the rest, which is little, looked at regularly.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable

EVERY = 25
"""Peers that have ended; the look takes some milliseconds, which the others do not notice."""


def set_aside() -> None:
    """What is there by now stays: do not look at it again."""
    gc.freeze()


class Giver:
    """Hands back once for every so many peers."""

    def __init__(self) -> None:
        self._trim = _find_trim()
        self._ended = 0

    def note_end(self) -> None:
        """A peer has ended."""
        self._ended += 1
        if self._ended % EVERY == 0:
            gc.collect()
            if self._trim is not None:
                self._trim(0)


def _find_trim() -> Callable[[int], int] | None:
    """`malloc_trim(3)` of glibc, which keeps pages that are free; other C libraries have none."""
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    return found
