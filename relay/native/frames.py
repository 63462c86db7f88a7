"""Binary frames: a header of 16 bytes and a chunk of PCM (docs/protocol.md, "Binary frames")."""

from __future__ import annotations

import struct

from relay.speaking.events import Audio

HEADER = struct.Struct("!BBHIII")
VERSION = 1
LAST_OF_SENTENCE = 0x01
MOST_MS = 0xFFFF


def encode_frame(audio: Audio) -> bytes:
    """A chunk as it goes to the client."""
    flags = LAST_OF_SENTENCE if audio.last else 0
    ttfa_ms = min(max(audio.ttfa_ms, 0), MOST_MS)
    return HEADER.pack(VERSION, flags, ttfa_ms, audio.number, audio.sentence, audio.chunk) + audio.pcm
