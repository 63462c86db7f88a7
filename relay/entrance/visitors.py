"""Who has come in by a door, and how a connection with them ends from our side."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from storage.tenancy.limits import Limits


@dataclass(frozen=True, slots=True)
class Visitor:
    """Whose connection it is, by which key, and from where."""

    tenant: UUID
    key_id: UUID
    expires_at: datetime | None
    limits: Limits
    """As they were when it came; a change holds for connections that come after it."""
    origin: str
    came_at: float
    """By the clock's `monotonic`; the key was looked up after that."""


class HangUp(Exception):
    """Ends a connection from our side, with a close code and a reason; without `patience_s` as for any message."""

    def __init__(self, code: int, reason: str, *, patience_s: float | None = None) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.patience_s = patience_s
