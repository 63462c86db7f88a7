"""The native protocol as values: what a relay sends, read from its messages. No input or output here.

`docs/protocol.md` is the specification.
"""

from __future__ import annotations

import dataclasses
import json
import struct
from dataclasses import dataclass
from typing import Any, TypeVar

from timbrelay.errors import OpsError

PROTOCOL = 1
BYTES_PER_SAMPLE = 2
_HEADER = struct.Struct(">BBHIII")
_LAST = 0x01


class ProtocolFault(OpsError):
    """Raised when the relay sends what this client does not understand."""


class RelayError(OpsError):
    """Raised when the relay refuses or ends something. `code` is the wire code of `docs/protocol.md`."""

    def __init__(
        self,
        code: str,
        message: str,
        field: str | None = None,
        retryable: bool = False,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(f"{message} ({code}{f', field {field}' if field else ''})")
        self.code = code
        self.message = message
        self.field = field
        self.retryable = retryable
        self.retry_after_ms = retry_after_ms
        """When it may be worth trying again, where the relay can tell."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a connection."""

    sample_rate: int
    chunk_samples: int


@dataclass(frozen=True, slots=True)
class Opened:
    """A context has begun; `number` names it in binary frames."""

    context: str
    number: int
    voice: str
    version: int
    resume: str = ""
    """Resumes the context over another connection."""
    characters: int = 0
    """How much of its text has arrived: after a resume, send what comes behind it."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence went to the workers; `start` and `end` are its span in the context's text."""

    context: str
    sentence: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Mono PCM, signed 16 bit, little-endian; `context` is the number from `Opened`."""

    context: int
    sentence: int
    number: int
    last: bool
    pcm: bytes
    ttfa_ms: int = 0
    """From its sentence's last character until the relay had it ready."""

    @property
    def samples(self) -> int:
        return len(self.pcm) // BYTES_PER_SAMPLE


@dataclass(frozen=True, slots=True)
class Word:
    """A word as it was written, its span in the context's text, and its times in the context's audio."""

    text: str
    start: int
    end: int
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class Words:
    """The words of a sentence that are complete with the next chunk."""

    context: str
    sentence: int
    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class SentenceEnd:
    """The last chunk of a sentence was sent; times in milliseconds since it went to the workers."""

    context: str
    sentence: int
    chunks: int
    samples: int
    first_audio_ms: float
    overhead_ms: float | None
    """The part of it in which nothing was computed for the sentence; None when the worker did not say."""

    total_ms: float


@dataclass(frozen=True, slots=True)
class Flushed:
    """All that was sent before a flush is spoken; `flush` is its number within the context, from 0."""

    context: str
    flush: int


@dataclass(frozen=True, slots=True)
class Done:
    """All of the context is spoken."""

    context: str
    sentences: int
    samples: int


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The answer to a cancel."""

    context: str


@dataclass(frozen=True, slots=True)
class Failed:
    """An error; it has ended its context, if it has one."""

    context: str | None
    error: RelayError
    unspoken: tuple[int, int] | None = None
    """What of the context's text was not heard to its end."""


Event = Hello | Opened | Sentence | Words | SentenceEnd | Flushed | Done | Cancelled | Failed

_Kind = Hello | Opened | Sentence | SentenceEnd | Flushed | Done | Cancelled
Known = TypeVar("Known", bound=_Kind | Word)

_KINDS: dict[str, type[_Kind]] = {
    "hello": Hello,
    "opened": Opened,
    "sentence": Sentence,
    "sentence_end": SentenceEnd,
    "flushed": Flushed,
    "done": Done,
    "cancelled": Cancelled,
}


def parse_message(text: str) -> Event | None:
    """Reads a text message; kinds and fields that this version does not know are passed over. Raises ProtocolFault."""
    try:
        message: dict[str, Any] = json.loads(text)
        if message["type"] == "error":
            unspoken = message.get("unspoken")
            span = None if unspoken is None else (int(unspoken["start"]), int(unspoken["end"]))
            return Failed(message.get("context"), parse_error(message), span)
        if message["type"] == "words":
            words = tuple(_read(Word, word) for word in message["words"])
            return Words(message["context"], message["sentence"], words)
        kind = _KINDS.get(str(message["type"]))
        return None if kind is None else _read(kind, message)
    except (ValueError, KeyError, TypeError) as error:
        raise ProtocolFault(f"The relay sent a message that this client does not know: {error!r}.") from error


def _read(kind: type[Known], fields: dict[str, Any]) -> Known:
    optional = {field.name for field in dataclasses.fields(kind) if field.default is not dataclasses.MISSING}
    return kind(**{name: fields[name] for name in kind.__slots__ if name in fields or name not in optional})


def parse_error(fields: dict[str, Any]) -> RelayError:
    """Reads the fields of an error, the same over HTTP and the WebSocket."""
    return RelayError(
        str(fields.get("code", "internal")),
        str(fields.get("message", "The relay gave no reason.")),
        fields.get("field"),
        bool(fields.get("retryable", False)),
        int(fields["retry_after_ms"]) if fields.get("retry_after_ms") is not None else None,
    )


def parse_frame(frame: bytes) -> Chunk:
    """Reads a binary frame. Raises ProtocolFault."""
    if len(frame) < _HEADER.size or (len(frame) - _HEADER.size) % BYTES_PER_SAMPLE:
        raise ProtocolFault(f"The relay sent a frame of {len(frame)} bytes, which holds no whole samples.")
    version, flags, ttfa_ms, context, sentence, number = _HEADER.unpack_from(frame)
    if version != PROTOCOL:
        raise ProtocolFault(f"The relay sent a frame of version {version}; this client reads version {PROTOCOL}.")
    return Chunk(context, sentence, number, bool(flags & _LAST), frame[_HEADER.size :], ttfa_ms)
