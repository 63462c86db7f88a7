"""What the sans-I/O core wants done; the connection does it, in order."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

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
    samples: int


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


@dataclass(frozen=True, slots=True)
class Note:
    """Put on record what a context that has ended has spoken; what was silenced before it was sent comes off."""

    context: int
    """Its name in binary frames, as `Silence` has it."""
    key: str
    voice: UUID
    version: int
    sentences: int
    """Of which something was played."""
    characters: int
    """Of these sentences."""
    samples: int
    text_hmac: str
    """Of all the text that the context was given."""


Output = Say | Play | Submit | Silence | Bury | Note
