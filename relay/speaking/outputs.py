"""What the sans-I/O core wants done; the connection does it, in order."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from relay.speaking.events import Event
from storage.streams.wire import Job


@dataclass(frozen=True, slots=True)
class Tell:
    """Let the client know."""

    event: Event


@dataclass(frozen=True, slots=True)
class Submit:
    """Put a sentence on the stream of jobs."""

    job: Job


@dataclass(frozen=True, slots=True)
class Silence:
    """Forget the audio of this context that is not sent yet."""

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


Output = Tell | Submit | Silence | Bury | Note
