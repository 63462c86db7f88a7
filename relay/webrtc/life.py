"""When a peer has to go although neither side has closed it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

CONNECT_WITHIN_S = 15.0
SILENT_AFTER_S = 3.0
"""Pipecat's clients ping every second, and take a server for gone after as long."""


class Ending(StrEnum):
    """Why a peer ended, as it is counted."""

    STUCK = "stuck"
    FAILED = "failed"
    LEFT = "left"
    DELETED = "deleted"
    SILENT = "silent"
    IDLE = "idle"
    FLOODED = "flooded"
    UNREAD = "unread"
    HUNG_UP = "hung_up"
    REPLACED = "replaced"
    FAULT = "fault"


@dataclass(slots=True)
class Life:
    """What is known of one peer's being there; times are the clock's `monotonic`."""

    born_at: float
    idle_s: float
    connected_at: float | None = None
    pinged_at: float | None = None
    active_at: float = 0.0

    def connect(self, now: float) -> None:
        """Media flows."""
        self.connected_at = self.active_at = now

    def ping(self, now: float) -> None:
        """The client says that it is there, and from now on has to go on saying so."""
        self.pinged_at = now

    def act(self, now: float) -> None:
        """Something was said, by either side."""
        self.active_at = now

    def judge(self, now: float) -> Ending | None:
        """Why it has to end now, if it has to."""
        if self.connected_at is None:
            return Ending.STUCK if now - self.born_at > CONNECT_WITHIN_S else None
        if self.pinged_at is not None and now - self.pinged_at > SILENT_AFTER_S:
            return Ending.SILENT
        return Ending.IDLE if now - self.active_at > self.idle_s else None
