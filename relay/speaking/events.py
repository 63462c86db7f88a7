"""What a context tells its client; every door puts it into the words of its own protocol."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from relay.errors import RelayError

SAMPLE_RATE = 24_000
BYTES_PER_SAMPLE = 2


@dataclass(frozen=True, slots=True)
class Word:
    """A word of the text, and when it is heard."""

    text: str
    """As it was written, with what sticks to it."""
    start: int
    end: int
    """Its span in the context's text, in code points."""
    start_s: float
    end_s: float
    """Within the audio of the context."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The context has begun, or goes on after its connection was lost."""

    context: str
    number: int
    """Its name in binary frames; another one after it was resumed."""
    voice: UUID
    version: int
    resume: str
    """Opens the context again from another connection; a secret of its client."""
    manner: object = None
    """As the command gave it."""
    characters: int = 0
    """How much of its text has arrived, in code points: what a client that resumes has to send no more."""
    ended: bool = False
    """Whether the text's end has arrived as well."""


@dataclass(frozen=True, slots=True)
class SentenceBegun:
    """A sentence went to the workers."""

    context: str
    sentence: int
    start: int
    end: int
    """Its span in the context's text, in code points."""


@dataclass(frozen=True, slots=True)
class Audio:
    """A chunk, in its turn."""

    context: str
    number: int
    sentence: int
    chunk: int
    """Its number within the sentence."""
    pcm: bytes
    """Mono, signed 16 bit, little-endian, at SAMPLE_RATE, whole samples: 80 ms, or as the operator has set."""
    last: bool
    """Whether the sentence ends with it."""
    start_s: float
    """Where it begins within the audio of the context."""
    ready_at: float
    """When there was nothing left but to send it, by the clock's `monotonic`."""
    ttfa_ms: int
    """From the sentence's last character until it was ready to be sent."""
    words: tuple[Word, ...] = ()
    """Those that are complete by now: each once, in their order, all of a sentence by its last chunk."""
    mel: bytes = b""
    """For a context that wants them, the mel frames that were decoded since the chunk before: float16 [frames, 80]."""

    @property
    def samples(self) -> int:
        """How long it is."""
        return len(self.pcm) // BYTES_PER_SAMPLE


@dataclass(frozen=True, slots=True)
class SentenceEnded:
    """The last chunk of a sentence is on its way; times count from when it went to the workers."""

    context: str
    sentence: int
    chunks: int
    samples: int
    first_audio_ms: float
    overhead_ms: float | None
    """The part of `first_audio_ms` in which nothing was computed for it; None where the worker does not say."""
    total_ms: float


@dataclass(frozen=True, slots=True)
class Flushed:
    """All that was pushed before a flush is spoken."""

    context: str
    flush: int
    """The flush's number within its context, from 0."""


@dataclass(frozen=True, slots=True)
class Done:
    """All of the context is spoken; it has ended."""

    context: str
    sentences: int
    samples: int


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The context has ended because its client wanted so; no audio of it follows."""

    context: str


@dataclass(frozen=True, slots=True)
class Failed:
    """Something went wrong: with a context, or with what the client said."""

    context: str | None
    error: RelayError
    ended: bool = True
    """Whether the context has ended, or never began; otherwise it goes on as if nothing had been said."""
    unspoken: tuple[int, int] | None = None
    """The span of its text that was not heard to its end."""


@dataclass(frozen=True, slots=True)
class Draining:
    """The relay is going to stop: what has begun is finished, nothing new begins here."""

    within_s: float


Event = Opened | SentenceBegun | Audio | SentenceEnded | Flushed | Done | Cancelled | Failed | Draining
