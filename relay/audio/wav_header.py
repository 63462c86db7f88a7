"""Headers of WAV files whose end is not known yet (RIFF, Microsoft and IBM 1991).

All sizes are 0xFFFFFFFF, which readers take as "up to the end", as in RF64 (EBU Tech 3306) and FFmpeg's output.
"""

from __future__ import annotations

import struct

from relay.audio.formats import Codec

_UNKNOWN = struct.pack("<I", 0xFFFFFFFF)
_MONO = 1
_TAGS = {Codec.PCM_S16: (1, 16), Codec.PCM_F32: (3, 32), Codec.ALAW: (6, 8), Codec.ULAW: (7, 8)}
"""WAVE_FORMAT_PCM, _IEEE_FLOAT, _ALAW, _MULAW with their bits a sample."""


def write_streaming_header(rate: int, codec: Codec = Codec.PCM_S16) -> bytes:
    """44 bytes for mono samples of this codec at `rate` Hz, 58 for what is no PCM.

    That has an extension, even an empty one, and a `fact` chunk (Microsoft, "Multiple Channel Audio Data and WAVE
    Files").
    """
    tag, bits = _TAGS[codec]
    block = _MONO * bits // 8
    fields = struct.pack("<HHIIHH", tag, _MONO, rate, rate * block, block, bits)
    fact = b""
    if codec is not Codec.PCM_S16:
        fields += struct.pack("<H", 0)
        fact = b"fact" + struct.pack("<I", 4) + _UNKNOWN
    size = struct.pack("<I", len(fields))
    return b"RIFF" + _UNKNOWN + b"WAVEfmt " + size + fields + fact + b"data" + _UNKNOWN
