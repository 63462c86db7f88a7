"""The messages between relay and worker, as entries of Redis streams.

An entry is a flat map of byte strings: `v`, the format's version, and one field a value, numbers and text in ASCII or
UTF-8, what is many numbers (samples, timings, frames) in binary. Reading is strict: what is missing or malformed raises
MalformedEntry rather than becoming a default.

Version 2 has the timings of words, and mel frames for jobs that ask for them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar
from uuid import UUID

from storage.errors import MalformedEntry

VERSION = b"2"
MAX_TEXT_BYTES = 4096
MAX_PCM_BYTES = 64 * 1024
MAX_MEL_BYTES = 64 * 1024
MEL_FRAME_BYTES = 160
"""A frame of 80 numbers in float16."""

_TIMING = struct.Struct("<HII")

Fields = dict[bytes, bytes]
Message = TypeVar("Message", "Job", "Chunk", "Failure")


@dataclass(frozen=True, slots=True)
class Job:
    """One sentence to synthesize."""

    relay: str
    """The relay whose result stream gets the chunks."""
    context: str
    """The context's key, unique over all relays."""
    sentence: int
    """The sentence's number within its context."""
    tenant: UUID
    voice: UUID
    version: int
    """The version of the voice."""
    deadline_ms: int
    """When the context's listener runs dry, in Unix milliseconds."""
    text: str
    """What to say."""
    mel: bool = False
    """Whether the chunks are to carry mel frames."""
    speed_percent: int = 100
    """How fast its listener hears it: at 200 a second of it lasts half a second."""


@dataclass(frozen=True, slots=True)
class Timing:
    """When a word of a sentence is spoken."""

    word: int
    """The word's number in `text.split()`, where `text` is the job's; below 65,536."""
    start_ms: int
    end_ms: int
    """From the sentence's first sample, start <= end."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Up to 80 ms of a sentence."""

    context: str
    sentence: int
    number: int
    """The chunk's number within its sentence."""
    last: bool
    """Whether the sentence ends with this chunk."""
    pcm: bytes
    """Mono, signed 16 bit, little-endian."""
    computed_us: int = 0
    """How long text, decoder and vocoder computed, since the job was taken, until this chunk was there; no waiting."""
    words: tuple[Timing, ...] = ()
    """The words that are complete with this chunk, in order; each sounding word comes once."""
    mel: bytes = b""
    """For a job that asked: little-endian float16 [T, 80], the frames decoded since the chunk before, T >= 0."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The end of a sentence that could not be spoken."""

    context: str
    sentence: int
    code: str
    message: str
    retryable: bool


Result = Chunk | Failure


def encode(message: Job | Chunk | Failure) -> Fields:
    """The message as the fields of a stream entry."""
    entry: Fields = {b"v": VERSION, b"kind": type(message).__name__.lower().encode()}
    for field in fields(message):
        entry[field.name.encode()] = _encode(getattr(message, field.name))
    return entry


def decode_job(entry: Mapping[bytes, bytes]) -> Job:
    """Read a job; raises MalformedEntry."""
    job = _decode(Job, entry)
    if len(job.text.encode()) > MAX_TEXT_BYTES:
        raise MalformedEntry(f"a job's text is over {MAX_TEXT_BYTES} bytes")
    if job.speed_percent <= 0:
        raise MalformedEntry(f"a job's speed is {job.speed_percent} %")
    return job


def decode_result(entry: Mapping[bytes, bytes]) -> Result:
    """Read a chunk or a failure; raises MalformedEntry."""
    if entry.get(b"kind") == b"failure":
        return _decode(Failure, entry)
    chunk = _decode(Chunk, entry)
    if len(chunk.pcm) > MAX_PCM_BYTES or len(chunk.pcm) % 2:
        raise MalformedEntry(f"a chunk has {len(chunk.pcm)} bytes of PCM")
    if len(chunk.mel) > MAX_MEL_BYTES or len(chunk.mel) % MEL_FRAME_BYTES:
        raise MalformedEntry(f"a chunk has {len(chunk.mel)} bytes of mel frames")
    if any(timing.start_ms > timing.end_ms for timing in chunk.words):
        raise MalformedEntry("a chunk has a word that ends before it starts")
    return chunk


def _encode(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return b"1" if value else b"0"
    if isinstance(value, tuple):
        return b"".join(_TIMING.pack(timing.word, timing.start_ms, timing.end_ms) for timing in value)
    return str(value).encode()


def _decode(kind: type[Message], entry: Mapping[bytes, bytes]) -> Message:
    if entry.get(b"v") != VERSION or entry.get(b"kind") != kind.__name__.lower().encode():
        raise MalformedEntry(f"not a {kind.__name__.lower()} of format {VERSION.decode()}")
    try:
        values = {field.name: _READ[str(field.type)](entry[field.name.encode()]) for field in fields(kind)}
    except (KeyError, ValueError, struct.error) as error:
        raise MalformedEntry(f"a {kind.__name__.lower()} with a missing or malformed field: {error}") from error
    return kind(**values)


def _read_bool(raw: bytes) -> bool:
    return {b"1": True, b"0": False}[raw]


def _read_timings(raw: bytes) -> tuple[Timing, ...]:
    return tuple(Timing(*numbers) for numbers in _TIMING.iter_unpack(raw))


_READ: dict[str, Callable[[bytes], Any]] = {
    "str": lambda raw: raw.decode(),
    "int": int,
    "bool": _read_bool,
    "bytes": bytes,
    "UUID": lambda raw: UUID(raw.decode()),
    "tuple[Timing, ...]": _read_timings,
}
