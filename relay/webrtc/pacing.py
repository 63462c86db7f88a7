"""When each 20 ms of sound are due: a grid that does not drift, and that jumps only over what a stall has made late."""

from __future__ import annotations

from dataclasses import dataclass

FRAME_S = 0.02
FRAME_SAMPLES = 960
"""At 48 kHz; other lengths are choppy at the other end."""
CATCH_UP_S = 0.1
"""Frames that are later than this are not sent in a burst any more: they would fill the listener's buffer for good."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a frame lies in time."""

    pts: int
    """In samples at 48 kHz; always more than that of the slot before."""
    due_at: float


class Pace:
    """Gives out the slots of one track, from the moment that its first is asked for."""

    def __init__(self) -> None:
        self._origin: float | None = None
        self._next = 0

    def take(self, now: float) -> Slot:
        """The next slot, which may be in the past."""
        if self._origin is None:
            self._origin = now
        reached = int((now - self._origin) / FRAME_S)
        if now - self._due(self._next) > CATCH_UP_S:
            self._next = reached
        slot = Slot(self._next * FRAME_SAMPLES, self._due(self._next))
        self._next += 1
        return slot

    def _due(self, index: int) -> float:
        return (self._origin or 0.0) + index * FRAME_S
