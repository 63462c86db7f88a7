"""Recordings to enrol, made here: speech of the samples, in every container and codec."""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import av
import numpy as np
import soundfile
import soxr
from av.audio.stream import AudioStream
from numpy.typing import NDArray

Wave = NDArray[np.float32]

RATE = 24_000
MAX_BYTES = 4 * 1024 * 1024
KINDS = [
    ("WAV", "PCM_16"),
    ("WAV", "PCM_U8"),
    ("WAV", "FLOAT"),
    ("WAVEX", "PCM_24"),
    ("RF64", "PCM_16"),
    ("FLAC", "PCM_24"),
    ("OGG", "VORBIS"),
    ("OGG", "OPUS"),
    ("MP3", "MPEG_LAYER_III"),
]
FRAGMENTS = {"movflags": "frag_keyframe+empty_moov+default_base_moof"}
LIVE = {"live": "1"}
"""What a browser writes: no length, no index, clusters of unknown size."""
MADE: Mapping[str, tuple[str, str, Mapping[str, str], str]] = {
    "m4a": ("ipod", "aac", {}, "MP4/AAC"),
    "m4a, lossless": ("ipod", "alac", {}, "MP4/ALAC"),
    "mp4": ("mp4", "aac", {}, "MP4/AAC"),
    "mp4, opus": ("mp4", "libopus", {}, "MP4/OPUS"),
    "mp4, fragments": ("mp4", "aac", FRAGMENTS, "MP4/AAC"),
    "webm": ("webm", "libopus", {}, "WEBM/OPUS"),
    "webm, live": ("webm", "libopus", LIVE, "WEBM/OPUS"),
}
"""By name: FFmpeg's format and encoder, the format's options, and what the decoder calls it."""

_SAMPLES = Path(__file__).parents[2] / "samples"
_SPOKEN = {"high": ((0.05, 2.85), (3.35, 8.2)), "low": ((0.08, 2.8), (3.25, 8.0))}
"""Seconds of the samples in which somebody speaks."""
_LAYOUTS = {1: "mono", 2: "stereo", 8: "7.1"}


@cache
def talk(rate: int, who: str = "high") -> Wave:
    """A minute and more of one person who never pauses, synthetic."""
    wave, own = soundfile.read(_SAMPLES / f"reference-{who}.wav", dtype="float32")
    spoken = np.concatenate([wave[round(start * own) : round(end * own)] for start, end in _SPOKEN[who]])
    return np.asarray(soxr.resample(np.tile(spoken, 10), own, rate), np.float32)


def voice(seconds: float, rate: int = RATE, level: float = 0.3, who: str = "high") -> Wave:
    """Speech that reaches `level`."""
    wave = talk(rate, who)[: round(seconds * rate)]
    return np.asarray(wave / np.abs(wave).max() * level, np.float32)


def silence(seconds: float) -> Wave:
    """Nothing."""
    return np.zeros(round(seconds * RATE), np.float32)


def write(wave: NDArray[np.generic], kind: str = "WAV", subtype: str | None = None, rate: int = RATE) -> bytes:
    """A file by libsndfile, written second by second: its Vorbis encoder falls over half an hour in one piece."""
    file = io.BytesIO()
    channels = wave.shape[1] if wave.ndim == 2 else 1
    with soundfile.SoundFile(file, "w", rate, channels, subtype, format=kind) as writer:
        for start in range(0, len(wave), rate):
            writer.write(wave[start : start + rate])
    return file.getvalue()


@cache
def sample(kind: str, subtype: str) -> bytes:
    """Four seconds of speech as a file of libsndfile's."""
    return write(voice(4), kind, subtype)


def make(container: str, codec: str, wave: Wave, rate: int, options: Mapping[str, str]) -> bytes:
    """A file of one stream by FFmpeg, of float32 [N, channels]."""
    file = io.BytesIO()
    layout = _LAYOUTS[wave.shape[1]]
    with av.open(file, "w", format=container, options=dict(options)) as output:
        stream = output.add_stream(codec, rate=rate)
        assert isinstance(stream, AudioStream)
        stream.layout = layout
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(wave.T), format="fltp", layout=layout)
        frame.sample_rate = rate
        fifo = av.AudioFifo()
        for piece in av.AudioResampler(format=stream.format.name, layout=layout, rate=rate).resample(frame):
            fifo.write(piece)
        while (part := fifo.read(stream.codec_context.frame_size or 960, partial=True)) is not None:
            output.mux(stream.encode(part))
        output.mux(stream.encode(None))
    return file.getvalue()


@cache
def made(name: str, rate: int = 48_000, channels: int = 1) -> bytes:
    """Five seconds of speech as one of MADE."""
    container, codec, options, _ = MADE[name]
    return make(container, codec, spread(voice(5, rate), channels), rate, options)


def spread(wave: Wave, channels: int) -> Wave:
    """The same on each channel, float32 [N, channels]."""
    return np.repeat(wave[:, None], channels, axis=1)


def rewrap(data: bytes, container: str, options: Mapping[str, str]) -> bytes:
    """The same packets in another container."""
    file = io.BytesIO()
    with (
        av.open(io.BytesIO(data), "r") as source,
        av.open(file, "w", format=container, options=dict(options)) as output,
    ):
        stream = output.add_stream_from_template(source.streams.audio[0])
        for packet in source.demux(source.streams.audio[0]):
            if packet.dts is not None:
                packet.stream = stream
                output.mux(packet)
    return file.getvalue()
