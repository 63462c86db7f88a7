"""The way of samples into a format: another speed, another rate, a codec."""

from __future__ import annotations

import numpy as np

from relay.audio.coders import Coder, Raw, to_f32, to_s16
from relay.audio.companding import to_alaw, to_ulaw
from relay.audio.encoding import SOURCE_RATE
from relay.audio.formats import DEFAULT_BITRATE, Codec, Format
from relay.audio.resampling import Resampler
from relay.audio.samples import SILENCE, Samples, Stage
from relay.audio.wav_header import write_streaming_header

OPUS_INPUT_RATE = SOURCE_RATE
"""Opus takes 24 kHz as it is and is always played at 48 kHz (RFC 6716, 2.1.3): no resampler, none of its delay."""


class Pipeline:
    """Stages in a row and a coder at their end."""

    def __init__(self, format: Format, speed: float) -> None:
        self._stages = _make_stages(format, speed)
        self._coder = _make_coder(format)

    def encode(self, pcm: bytes) -> bytes:
        samples: Samples = np.frombuffer(pcm, "<i2")
        for stage in self._stages:
            samples = stage.push(samples)
        return self._coder.encode(samples)

    def finish(self) -> bytes:
        tail = SILENCE
        for stage in self._stages:
            tail = np.concatenate([stage.push(tail), stage.finish()])
        return self._coder.encode(tail) + self._coder.finish()


def _make_stages(format: Format, speed: float) -> list[Stage]:
    stages: list[Stage] = []
    if speed != 1.0:
        from relay.audio.stretching import Stretcher

        stages.append(Stretcher(SOURCE_RATE, speed))
    rate = OPUS_INPUT_RATE if format.codec is Codec.OPUS else format.sample_rate
    return stages if rate == SOURCE_RATE else [*stages, Resampler(SOURCE_RATE, rate)]


def _make_coder(format: Format) -> Coder:
    match format.codec:
        case Codec.PCM_S16:
            return Raw(to_s16)
        case Codec.PCM_F32:
            return Raw(to_f32)
        case Codec.WAV:
            return Raw(to_s16, write_streaming_header(format.sample_rate))
        case Codec.ULAW:
            return Raw(to_ulaw)
        case Codec.ALAW:
            return Raw(to_alaw)
        case codec:
            return _make_compressor(codec, format.sample_rate, format.bitrate or DEFAULT_BITRATE)


def _make_compressor(codec: Codec, rate: int, bitrate: int) -> Coder:
    from relay.audio import compression
    from relay.audio.ogg_opus import OggOpus

    match codec:
        case Codec.MP3:
            return compression.Mp3(rate, bitrate)
        case Codec.AAC:
            return compression.Aac(rate, bitrate)
        case Codec.FLAC:
            return compression.Flac(rate)
        case Codec.OPUS:
            return OggOpus(OPUS_INPUT_RATE, bitrate)
        case _:
            raise ValueError(f"{codec} is no compressed format")
