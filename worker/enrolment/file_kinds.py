"""What the first bytes of an upload say it is; only the four kinds that are taken ever reach a decoder."""

from __future__ import annotations

import string

_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"%PDF", "a PDF document"),
    (0, b"\x89PNG", "a PNG picture"),
    (0, b"\xff\xd8\xff", "a JPEG picture"),
    (0, b"GIF8", "a GIF picture"),
    (8, b"WEBP", "a WebP picture"),
    (0, b"PK\x03\x04", "a ZIP archive or an office document"),
    (0, b"\x1f\x8b", "a gzip archive"),
    (0, b"7z\xbc\xaf", "a 7z archive"),
    (4, b"ftypM4", "M4A audio (AAC)"),
    (4, b"ftyp", "an MP4 or M4A file"),
    (0, b"\x1a\x45\xdf\xa3", "a WebM or Matroska file"),
    (8, b"AVI ", "an AVI video"),
    (0, b"\x30\x26\xb2\x75", "a WMA or WMV file"),
    (0, b"#!AMR", "AMR audio"),
    (0, b"FORM", "AIFF audio"),
    (0, b".snd", "AU audio"),
    (0, b"caff", "CAF audio"),
    (0, b"\x7fELF", "a program"),
    (0, b"MZ", "a program"),
)
_TEXT = frozenset(string.printable.encode()) | frozenset(range(0x80, 0x100))
_MPEG_SYNC = 0xE0
_MPEG_LAYER = 0x06


def is_taken(data: bytes) -> bool:
    """Whether the bytes begin as WAV (RIFF, RIFX, RF64), FLAC, Ogg or MP3 do (RFC 9639, RFC 3533, ISO 11172-3)."""
    if data[:4] in (b"RIFF", b"RIFX", b"RF64"):
        return data[8:12] == b"WAVE"
    return data.startswith((b"fLaC", b"OggS", b"ID3")) or _begins_mpeg_frame(data)


def name_kind(data: bytes) -> str | None:
    """What the bytes look like, for a sentence to the person who sent them; None if that is not known."""
    for offset, magic, name in _MAGIC:
        if data.startswith(magic, offset):
            return name
    if data[:1] == b"\xff" and data[1:2] and data[1] & 0xF6 == 0xF0:
        return "raw AAC audio (ADTS)"
    if data and _TEXT.issuperset(data[:4096]) and _is_utf8(data[:4096]):
        return "text"
    return None


def _begins_mpeg_frame(data: bytes) -> bool:
    """An MPEG audio frame: eleven bits of sync and a layer; layer 0 would be AAC in ADTS."""
    return len(data) > 1 and data[0] == 0xFF and data[1] & _MPEG_SYNC == _MPEG_SYNC and data[1] & _MPEG_LAYER != 0


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start > len(data) - 4 and error.reason == "unexpected end of data"
    return True
