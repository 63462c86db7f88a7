"""The codecs of FFmpeg, fed in a stream: mp3, AAC and FLAC. LGPL and BSD code only (docs/formats.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from fractions import Fraction
from typing import cast

import numpy as np
from av import AudioFrame, CodecContext
from av.audio.codeccontext import AudioCodecContext

from relay.audio.encoding import SOURCE_RATE
from relay.audio.one_core import one_core
from relay.audio.samples import SILENCE, Samples

RECOGNISABLE = 6
"""Frames without a header before them are known by following one another. FFmpeg wants to see seven, which six and the
encoder's delay are; of fewer it takes one file in a thousand for something else."""


class Frames:
    """One encoder of libavcodec. It wants frames of one length, and only the last may be shorter.

    `sample_format` is FFmpeg's name for the layout of samples, of s16 and float ones. With fewer samples than `least`
    frames have, silence is added.
    """

    def __init__(
        self,
        codec: str,
        sample_format: str,
        rate: int,
        options: Mapping[str, str],
        *,
        bitrate: int | None = None,
        least: int = 0,
    ) -> None:
        self.context = cast("AudioCodecContext", CodecContext.create(codec, "w"))
        self.context.sample_rate, self.context.layout, self.context.format = rate, "mono", sample_format
        self.context.time_base, self.context.options = Fraction(1, rate), dict(options)
        self.context.thread_count = 1
        if bitrate is not None:
            self.context.bit_rate = bitrate
        self.context.open()
        self._least = least * self.context.frame_size
        self._format, self._waiting, self._position = sample_format, SILENCE, 0

    def push(self, samples: Samples) -> list[bytes]:
        """The packets that became final."""
        self._waiting = np.concatenate([self._waiting, samples])
        size = self.context.frame_size
        whole = len(self._waiting) // size * size
        frames, self._waiting = self._waiting[:whole], self._waiting[whole:]
        return [packet for start in range(0, whole, size) for packet in self._encode(frames[start : start + size])]

    def finish(self) -> list[bytes]:
        """The last packets; none if nothing was pushed."""
        if not self._position and not len(self._waiting):
            return []
        missing = self._least - self._position - len(self._waiting)
        packets = self.push(np.zeros(max(0, missing), np.int16))
        packets += self._encode(self._waiting) if len(self._waiting) else []
        return packets + _read(self.context.encode(None))

    def _encode(self, samples: Samples) -> list[bytes]:
        frame = AudioFrame(format=self._format, layout="mono", samples=len(samples))
        is_float = self._format.startswith("flt")
        frame.planes[0].update((samples.astype(np.float32) / np.float32(32768) if is_float else samples).tobytes())
        frame.sample_rate, frame.time_base, frame.pts = self.context.sample_rate, self.context.time_base, self._position
        with nullcontext() if self._position else one_core():
            packets = self.context.encode(frame)
        self._position += len(samples)
        return _read(packets)


class Mp3:
    """MPEG audio layer III by LAME. Each frame stands for itself: without a bit reservoir it can go at once."""

    def __init__(self, rate: int, bitrate: int) -> None:
        options = {"reservoir": "0", "compression_level": "7"}
        self._frames = Frames("libmp3lame", "s16p", rate, options, bitrate=bitrate, least=RECOGNISABLE)

    def encode(self, samples: Samples) -> bytes:
        return b"".join(self._frames.push(samples))

    def finish(self) -> bytes:
        return b"".join(self._frames.finish())


class Flac:
    """FLAC (RFC 9639) in blocks of at most 27 ms; its header leaves length and checksum unknown."""

    def __init__(self, rate: int) -> None:
        self._frames = Frames("flac", "s16", rate, {"compression_level": "2"})
        self._header = b"fLaC" + _LAST_BLOCK_STREAMINFO + (self._frames.context.extradata or b"")

    def encode(self, samples: Samples) -> bytes:
        return self._take_header() + b"".join(self._frames.push(samples))

    def finish(self) -> bytes:
        return self._take_header() + b"".join(self._frames.finish())

    def _take_header(self) -> bytes:
        header, self._header = self._header, b""
        return header


class Aac:
    """AAC-LC by FFmpeg's own encoder in ADTS frames (ISO/IEC 13818-7, 6.2), which need no header before them."""

    def __init__(self, rate: int, bitrate: int) -> None:
        options = {"aac_coder": "fast", "cutoff": str(_HIGHEST_TONE)}
        self._frames = Frames("aac", "fltp", rate, options, bitrate=bitrate, least=RECOGNISABLE)
        self._rate_index = _ADTS_RATES.index(rate)

    def encode(self, samples: Samples) -> bytes:
        return self._wrap(self._frames.push(samples))

    def finish(self) -> bytes:
        return self._wrap(self._frames.finish())

    def _wrap(self, packets: Sequence[bytes]) -> bytes:
        return b"".join(part for packet in packets for part in (self._write_header(len(packet)), packet))

    def _write_header(self, size: int) -> bytes:
        """56 bits: sync word, MPEG-4 without checksum, LC, rate, mono, length with this header, variable bitrate."""
        bits = 0xFFF1 << 40 | 1 << 38 | self._rate_index << 34 | 1 << 30 | (size + 7) << 13 | 0x7FF << 2
        return bits.to_bytes(7, "big")


_HIGHEST_TONE = SOURCE_RATE // 2
_LAST_BLOCK_STREAMINFO = bytes([0x80, 0, 0, 34])
_ADTS_RATES = (96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350)


def _read(packets: Sequence[object]) -> list[bytes]:
    """FFmpeg's FLAC encoder ends with an empty packet that corrects its header; a stream cannot go back to that."""
    return [data for packet in packets if (data := bytes(packet))]  # type: ignore[call-overload]
