"""What the sans-I/O core wants done; the connection does it, in order."""

from __future__ import annotations

from dataclasses import dataclass

from storage.streams.wire import Job


@dataclass(frozen=True, slots=True)
class Say:
    """Send a JSON message to the client."""

    message: dict[str, object]


@dataclass(frozen=True, slots=True)
class Play:
    """Send a binary frame to the client."""

    context: int
    frame: bytes
    ready_at: float
    """When there was nothing left but to send it, by the clock's `monotonic`."""


@dataclass(frozen=True, slots=True)
class Submit:
    """Put a sentence on the stream of jobs."""

    job: Job


@dataclass(frozen=True, slots=True)
class Silence:
    """Forget the frames of this context that are not sent yet."""

    context: int


@dataclass(frozen=True, slots=True)
class Bury:
    """Put up the tombstone of a context, so that workers stop."""

    key: str


Output = Say | Play | Submit | Silence | Bury
