"""Binary frames: a header of 16 bytes and what it announces (docs/protocol.md, "Binary frames").

The WebSocket and the data channel of WebRTC carry the same frames: `encode_mel` is for both.
"""

from __future__ import annotations

import struct

from relay.speaking.events import Audio

HEADER = struct.Struct("!BBHIII")
"""Version, flags, milliseconds or frames, context, sentence, chunk."""
VERSION = 1
LAST_OF_SENTENCE = 0x01
MEL = 0x02
"""What follows are mel frames, not audio."""
REST = 0x04
"""What follows is the rest of the context's encoded audio, and no chunk of its own."""
MOST = 0xFFFF
"""The most that the third field holds."""
MEL_FRAME_BYTES = 160
"""80 numbers in float16."""


def encode_frame(audio: Audio, payload: bytes | None = None) -> bytes:
    """A chunk as it goes to the client; `payload` is what became of its PCM in another format, maybe nothing."""
    return _pack(audio, _flag_last(audio), audio.ttfa_ms) + (audio.pcm if payload is None else payload)


def encode_mel(audio: Audio) -> bytes:
    """The mel frames that were decoded since the chunk before, float16 little-endian [frames, 80].

    The third field says how many frames there are, and sentence and chunk which chunk they were made with.
    """
    return _pack(audio, MEL | _flag_last(audio), len(audio.mel) // MEL_FRAME_BYTES) + audio.mel


def encode_rest(number: int, payload: bytes) -> bytes:
    """What an encoder still held when its context was all spoken."""
    return HEADER.pack(VERSION, REST, 0, number, 0, 0) + payload


def _pack(audio: Audio, flags: int, field: int) -> bytes:
    return HEADER.pack(VERSION, flags, min(max(field, 0), MOST), audio.number, audio.sentence, audio.chunk)


def _flag_last(audio: Audio) -> int:
    return LAST_OF_SENTENCE if audio.last else 0
