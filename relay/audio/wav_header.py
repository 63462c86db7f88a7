"""The header of a WAV file whose end is not known yet."""

from __future__ import annotations

import struct

_UNKNOWN = 0xFFFFFFFF
_PCM, _MONO, _BITS = 1, 1, 16


def write_streaming_header(rate: int) -> bytes:
    """44 bytes for mono s16le at `rate` Hz (RIFF, Microsoft and IBM 1991).

    Both sizes are 0xFFFFFFFF, which readers take as "up to the end", as in RF64 (EBU Tech 3306) and FFmpeg's output.
    """
    block = _MONO * _BITS // 8
    fields = struct.pack("<IHHIIHH", 16, _PCM, _MONO, rate, rate * block, block, _BITS)
    return b"RIFF" + struct.pack("<I", _UNKNOWN) + b"WAVEfmt " + fields + b"data" + struct.pack("<I", _UNKNOWN)
