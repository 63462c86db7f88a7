"""The audio formats a client can ask for, by the names that ElevenLabs gives them: `mp3_44100_128`, `pcm_16000`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from relay.errors import InvalidMessage

PCM_RATES = (8000, 16000, 22050, 24000, 32000, 44100, 48000)
"""The sample rates, in Hz, of everything that is not squeezed by a model of hearing."""

DEFAULT_BITRATE = 64_000
"""bit/s where a client names none: one voice sounds like the original at that in mp3, Opus and AAC alike."""

_NAME = re.compile(r"([a-z0-9]{2,8})_([0-9]{4,5})(?:_([0-9]{2,3}))?", re.ASCII)
_NO_BITRATE: tuple[int, ...] = ()
_LOW, _MIDDLE, _HIGH = (32, 48, 64), (32, 48, 64, 96, 128), (32, 48, 64, 96, 128, 192)


class Codec(StrEnum):
    """How samples are written; the value is the first part of a format's name."""

    PCM_S16 = "pcm"
    PCM_F32 = "f32"
    WAV = "wav"
    ULAW = "ulaw"
    ALAW = "alaw"
    MP3 = "mp3"
    OPUS = "opus"
    FLAC = "flac"
    AAC = "aac"


_PLAIN = dict.fromkeys(PCM_RATES, _NO_BITRATE)
OFFERED: Mapping[Codec, Mapping[int, tuple[int, ...]]] = MappingProxyType(
    {
        Codec.PCM_S16: _PLAIN,
        Codec.PCM_F32: _PLAIN,
        Codec.WAV: _PLAIN,
        Codec.ULAW: _PLAIN,
        Codec.ALAW: _PLAIN,
        # MPEG-2.5, MPEG-2 and MPEG-1 have tables of bitrates of their own (ISO/IEC 13818-3, 2.4.2.3).
        Codec.MP3: {r: _LOW if r < 16000 else _MIDDLE if r < 32000 else _HIGH for r in PCM_RATES},
        Codec.OPUS: {48000: _HIGH},
        Codec.FLAC: _PLAIN,
        # A frame of 1024 samples has at most 6144 bits a channel (ISO/IEC 14496-3, 4.5.1.1).
        Codec.AAC: {24000: _MIDDLE, 44100: _HIGH, 48000: _HIGH},
    }
)
"""Sample rates in Hz, and for each the bitrates in kbit/s, or none where a codec has no choice of them."""

_MEDIA_TYPES = {
    Codec.PCM_S16: "audio/pcm",
    Codec.PCM_F32: "audio/pcm",
    Codec.WAV: "audio/wav",
    Codec.MP3: "audio/mpeg",
    Codec.OPUS: "audio/ogg;codecs=opus",
    Codec.FLAC: "audio/flac",
    Codec.AAC: "audio/aac",
}


@dataclass(frozen=True, slots=True)
class Format:
    """What a client wants to hear: a codec, a sample rate in Hz, and a bitrate in bit/s where the codec has one.

    Without a bitrate such a codec takes `DEFAULT_BITRATE`. Raises InvalidMessage for what is not offered, so that a
    Format that exists can be encoded.
    """

    codec: Codec
    sample_rate: int
    bitrate: int | None = None

    def __post_init__(self) -> None:
        rates = OFFERED[self.codec]
        if self.sample_rate not in rates or not self._has_bitrate(rates[self.sample_rate]):
            raise _refuse(self.name)

    def _has_bitrate(self, kbits: tuple[int, ...]) -> bool:
        return self.bitrate is None or self.bitrate in [1000 * kbit for kbit in kbits]

    @property
    def name(self) -> str:
        """As `parse_format` reads it."""
        stem = f"{self.codec}_{self.sample_rate}"
        return stem if self.bitrate is None else f"{stem}_{self.bitrate // 1000}"

    @property
    def media_type(self) -> str:
        """For Content-Type. `audio/L16` would be big-endian (RFC 2586); `audio/basic` is µ-law at 8 kHz (RFC 2046)."""
        match self.codec:
            case Codec.ULAW:
                return "audio/basic" if self.sample_rate == 8000 else f"audio/PCMU;rate={self.sample_rate}"
            case Codec.ALAW:
                return f"audio/PCMA;rate={self.sample_rate}"
            case codec:
                return _MEDIA_TYPES[codec]


def parse_format(name: str) -> Format:
    """The format of a name such as `opus_48000_64`; the last part is kbit/s, and may be left out.

    Raises InvalidMessage(field="output_format") that lists what there is.
    """
    parts = _NAME.fullmatch(name)
    if parts is None or parts[1] not in list(Codec):
        raise _refuse(name)
    return Format(Codec(parts[1]), int(parts[2]), int(parts[3]) * 1000 if parts[3] else None)


def list_formats() -> str:
    """All names in one line, alternatives in braces as a shell would expand them."""
    groups = []
    for codec, rates in OFFERED.items():
        for kbits in dict.fromkeys(rates.values()):
            stem = f"{codec}_{_spell([rate for rate, those in rates.items() if those == kbits])}"
            groups.append(f"{stem}_{_spell(kbits)}" if kbits else stem)
    return ", ".join(groups)


def _spell(values: list[int] | tuple[int, ...]) -> str:
    return str(values[0]) if len(values) == 1 else "{" + ",".join(map(str, values)) + "}"


def _refuse(name: str) -> InvalidMessage:
    return InvalidMessage(f"there is no format {name[:40]!r}; choose one of {list_formats()}", field="output_format")
