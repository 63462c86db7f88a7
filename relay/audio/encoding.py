"""Streams of 24 kHz samples become streams of a client's format: one encoder a response.

What numpy, soxr and FFmpeg are needed for is imported when the first encoder needs it: a relay whose clients take the
samples as they are spares the memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from relay.audio.formats import Codec, Format
from relay.audio.wav_header import write_streaming_header
from relay.errors import InvalidMessage

SOURCE_RATE = 24_000
"""Hz of what goes in: mono, signed 16 bits, little-endian."""

SLOWEST, FASTEST = 0.25, 4.0

_SAMPLE_BYTES = 2
_loaded: set[tuple[Codec, bool]] = set()
"""Codecs, with another speed or without, that need no loading any more."""


class Encoder(Protocol):
    """One response on its way into a format; the pieces that come out, joined, are the whole file."""

    def encode(self, pcm: bytes) -> bytes:
        """What became final with these samples, maybe nothing. Raises ValueError for half a sample."""

    def finish(self) -> bytes:
        """The rest. Nothing may be encoded after it, and it is called once: RuntimeError otherwise."""


def make_encoder(format: Format, *, speed: float = 1.0) -> Encoder:
    """An encoder for one response of 24 kHz mono s16le samples.

    A `speed` of 2.0 takes half the time in the same pitch. n samples become ceil(n * rate / 24000) ones, of a speed
    other than 1 ceil(ceil(n / speed) * rate / 24000); what a codec adds to that is in docs/formats.md.
    Raises InvalidMessage(field="speed") outside 0.25 to 4.
    """
    if not SLOWEST <= speed <= FASTEST:
        raise InvalidMessage(f"speed is {SLOWEST} to {FASTEST}, 1.0 is as spoken", field="speed")
    return OneStream(lambda: Untouched(format) if _is_source(format, speed) else _make_pipeline(format, speed))


async def load_codec(format: Format, *, speed: float = 1.0) -> None:
    """Loads what an encoder needs beside the event loop: the first time in a process that takes 60 to 300 ms."""
    kind = (format.codec, speed != 1.0)
    if kind not in _loaded and not _is_source(format, speed):
        await asyncio.to_thread(_load, format, speed)
        _loaded.add(kind)


def _load(format: Format, speed: float) -> None:
    # FFmpeg has things of its own that it does once.
    _make_pipeline(format, speed).encode(b"")


def _is_source(format: Format, speed: float) -> bool:
    return format.codec in (Codec.PCM_S16, Codec.WAV) and format.sample_rate == SOURCE_RATE and speed == 1.0


def _make_pipeline(format: Format, speed: float) -> Encoder:
    from relay.audio.pipeline import Pipeline

    return Pipeline(format, speed)


class OneStream:
    """Keeps an encoder's promises about its callers: whole samples, and nothing after the end.

    Makes the encoder when there is something to encode: until then its codec can be loaded beside the event loop.
    """

    def __init__(self, make: Callable[[], Encoder]) -> None:
        self._make = make
        self._inner: Encoder | None = None
        self._finished = False

    def encode(self, pcm: bytes) -> bytes:
        if self._finished:
            raise RuntimeError("this encoder has finished; a response has an encoder of its own")
        if len(pcm) % _SAMPLE_BYTES:
            raise ValueError(f"{len(pcm)} bytes are not whole samples of 16 bits")
        if self._inner is None:
            self._inner = self._make()
        return self._inner.encode(pcm)

    def finish(self) -> bytes:
        if self._finished:
            raise RuntimeError("this encoder has finished already")
        inner, self._inner, self._finished = self._inner or self._make(), None, True
        return inner.finish()


class Untouched:
    """The samples themselves, behind a header where the format has one."""

    def __init__(self, format: Format) -> None:
        self._header = write_streaming_header(SOURCE_RATE) if format.codec is Codec.WAV else b""

    def encode(self, pcm: bytes) -> bytes:
        header, self._header = self._header, b""
        return header + pcm

    def finish(self) -> bytes:
        return self.encode(b"")
