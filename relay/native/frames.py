"""Binary frames: a header of 16 bytes and a chunk of PCM (docs/protocol.md, "Binary frames")."""

from __future__ import annotations

import struct

HEADER = struct.Struct("!BBHIII")
VERSION = 1
LAST_OF_SENTENCE = 0x01


def encode_frame(context: int, sentence: int, chunk: int, pcm: bytes, *, last: bool) -> bytes:
    """A chunk as it goes to the client."""
    return HEADER.pack(VERSION, LAST_OF_SENTENCE if last else 0, 0, context, sentence, chunk) + pcm
