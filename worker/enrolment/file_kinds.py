"""What the first bytes of an upload say it is; only the kinds that are taken ever reach a decoder."""

from __future__ import annotations

import string
from enum import StrEnum

from worker.errors import RecordingError

TAKEN = "send a WAV, FLAC, OGG (Vorbis or Opus), MP3, M4A or WebM file"
_MOST_WORDS = 120


class Container(StrEnum):
    """What opens a file: libsndfile, or one of FFmpeg's demuxers."""

    SOUND = "SOUND"
    MP4 = "MP4"
    WEBM = "WEBM"


_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"%PDF", "a PDF document"),
    (0, b"\x89PNG", "a PNG picture"),
    (0, b"\xff\xd8\xff", "a JPEG picture"),
    (0, b"GIF8", "a GIF picture"),
    (8, b"WEBP", "a WebP picture"),
    (0, b"PK\x03\x04", "a ZIP archive or an office document"),
    (0, b"\x1f\x8b", "a gzip archive"),
    (0, b"7z\xbc\xaf", "a 7z archive"),
    (4, b"ftypheic", "a HEIC picture"),
    (4, b"ftypmif1", "a HEIC picture"),
    (4, b"ftypavif", "an AVIF picture"),
    (8, b"AVI ", "an AVI video"),
    (0, b"\x30\x26\xb2\x75", "a WMA or WMV file"),
    (0, b"#!AMR", "AMR audio"),
    (0, b"#EXTM3U", "a playlist"),
    (0, b"ffconcat", "a playlist"),
    (0, b"[playlist]", "a playlist"),
    (0, b"FORM", "AIFF audio"),
    (0, b".snd", "AU audio"),
    (0, b"caff", "CAF audio"),
    (0, b"\x7fELF", "a program"),
    (0, b"MZ", "a program"),
)
_TEXT = frozenset(string.printable.encode()) | frozenset(range(0x80, 0x100))
_MPEG_SYNC = 0xE0
_MPEG_LAYER = 0x06


def choose_container(data: bytes) -> Container:
    """What opens bytes that begin as WAV (RIFF, RIFX, RF64), FLAC, Ogg, MP3, MP4 or WebM do (RFC 9639, RFC 3533,
    ISO 11172-3, ISO 14496-12, RFC 8794).

    Raises:
        RecordingError: `recording_not_audio`, with what they look like.
    """
    kind = name_kind(data)
    if kind is None and _begins_sound(data):
        return Container.SOUND
    if kind is None and data[4:8] == b"ftyp":
        return Container.MP4
    if kind is None and data.startswith(b"\x1a\x45\xdf\xa3"):
        return Container.WEBM
    seems = f"looks like {kind}" if kind else "does not begin like an audio file"
    raise RecordingError("recording_not_audio", f"the recording {seems}; {TAKEN}")


def refuse_damage(words: str) -> RecordingError:
    """The error for a file that its decoder cannot read, with the decoder's own words."""
    reason = "".join(letter for letter in words if letter.isprintable()).strip().rstrip(".")[:_MOST_WORDS]
    return RecordingError(
        "recording_not_audio", f"the recording is damaged or of a kind that cannot be decoded ({reason}); {TAKEN}"
    )


def _begins_sound(data: bytes) -> bool:
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
