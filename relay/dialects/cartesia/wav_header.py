"""The header of a WAV file of samples that are not plain integers, whose end is not known yet."""

from __future__ import annotations

import struct

from relay.audio.formats import Codec

_UNKNOWN = 0xFFFFFFFF
_MONO = 1
_TAGS = {Codec.PCM_F32: (3, 32), Codec.ALAW: (6, 8), Codec.ULAW: (7, 8)}
"""WAVE_FORMAT_IEEE_FLOAT, _ALAW, _MULAW with their bits a sample (Microsoft, "Multiple Channel Audio Data and WAVE
Files": what is no PCM has an extension, even an empty one, and a `fact` chunk)."""


def write_streaming_header(codec: Codec, rate: int) -> bytes:
    """58 bytes for mono samples of this codec at `rate` Hz; its sizes say "up to the end", as FFmpeg writes them."""
    tag, bits = _TAGS[codec]
    block = _MONO * bits // 8
    fields = struct.pack("<IHHIIHHH", 18, tag, _MONO, rate, rate * block, block, bits, 0)
    fact = b"fact" + struct.pack("<II", 4, _UNKNOWN)
    return b"RIFF" + struct.pack("<I", _UNKNOWN) + b"WAVEfmt " + fields + fact + b"data" + struct.pack("<I", _UNKNOWN)
