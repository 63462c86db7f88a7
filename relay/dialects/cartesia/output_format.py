"""`output_format` of a request: the container, the encoding and the sample rate of what is sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

from relay.audio.encoding import Encoder, make_encoder
from relay.audio.formats import OFFERED, Codec, Format
from relay.audio.wav_header import write_streaming_header
from relay.errors import InvalidMessage

_CODECS = {
    "pcm_s16le": Codec.PCM_S16,
    "pcm_f32le": Codec.PCM_F32,
    "pcm_mulaw": Codec.ULAW,
    "pcm_alaw": Codec.ALAW,
}
_WAV = "audio/wav"


class OutputFormat(BaseModel):
    """As clients write it; `encoding` is of `raw` and `wav`, `bit_rate` (bit/s) of `mp3`."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    container: Literal["raw", "wav", "mp3"]
    encoding: Literal["pcm_s16le", "pcm_f32le", "pcm_mulaw", "pcm_alaw"] | None = None
    sample_rate: Literal[8000, 16000, 22050, 24000, 44100, 48000]
    bit_rate: Literal[32_000, 64_000, 96_000, 128_000, 192_000] | None = None


@dataclass(frozen=True, slots=True)
class Sound:
    """What is sent: a format, and what stands before its first byte."""

    format: Format
    media_type: str
    header: bytes = b""

    def encode(self, speed: float) -> Encoder:
        """An encoder without the header."""
        return make_encoder(self.format, speed=speed)


def read_format(wanted: OutputFormat, *, raw_only: bool) -> Sound:
    """The sound that is asked for; raises InvalidMessage with the field at fault.

    `raw_only` where a container's header would stand in the middle of a conversation.
    """
    if raw_only and wanted.container != "raw":
        raise _refuse("container", "must be `raw` here; `POST /tts/bytes` sends `wav` and `mp3` as well")
    if wanted.container == "mp3":
        return _read_mp3(wanted.sample_rate, wanted.bit_rate)
    if wanted.encoding is None:
        raise _refuse("encoding", f"must be one of {', '.join(_CODECS)} for the container `{wanted.container}`")
    codec, rate = _CODECS[wanted.encoding], wanted.sample_rate
    format = Format(codec, rate)
    if wanted.container == "raw":
        return Sound(format, format.media_type)
    if codec is Codec.PCM_S16:
        return Sound(Format(Codec.WAV, rate), _WAV)
    return Sound(format, _WAV, write_streaming_header(rate, codec))


def _read_mp3(rate: int, bit_rate: int | None) -> Sound:
    kbits = OFFERED[Codec.MP3][rate]
    if bit_rate is not None and bit_rate // 1000 not in kbits:
        known = ", ".join(str(1000 * kbit) for kbit in kbits)
        raise _refuse("bit_rate", f"must be one of {known} for mp3 at {rate} Hz")
    format = Format(Codec.MP3, rate, bit_rate)
    return Sound(format, format.media_type)


def _refuse(part: str, rule: str) -> InvalidMessage:
    return InvalidMessage(f"`output_format.{part}` {rule}", field=f"output_format.{part}")
