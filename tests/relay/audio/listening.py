"""What the tests of encoders share: something to encode, and decoders that are not ours to judge the outcome."""

from __future__ import annotations

import io
from collections.abc import Sequence

import av
import numpy as np
import soundfile
from av.audio.codeccontext import AudioCodecContext
from numpy.typing import NDArray

from relay.audio.encoding import SOURCE_RATE, make_encoder
from relay.audio.formats import Codec, Format, parse_format

PIECE = 1920
"""Samples of 80 ms, the longest piece a worker sends."""

CONTAINERS = {
    Codec.WAV: "wav",
    Codec.MP3: "mp3",
    Codec.OPUS: "ogg",
    Codec.FLAC: "flac",
    Codec.AAC: "aac",
}


def make_voice(samples: int, *, seed: int = 0) -> NDArray[np.int16]:
    """Something like a vowel whose pitch moves, with a breath of noise: [samples] at 24 kHz."""
    rng = np.random.default_rng(seed)
    time = np.arange(samples) / SOURCE_RATE
    pitch = 140 + 30 * np.sin(2 * np.pi * 1.3 * time + rng.uniform(0, 6))
    phase = 2 * np.pi * np.cumsum(pitch) / SOURCE_RATE
    tones = sum(np.sin(harmonic * phase) / harmonic for harmonic in range(1, 20))
    loudness = 0.6 + 0.4 * np.sin(2 * np.pi * 2.7 * time)
    wave = 5000 * loudness * tones + rng.normal(0, 60, samples)
    return np.clip(np.rint(wave), -32768, 32767).astype("<i2")


def make_tone(hertz: float, samples: int, *, loud: float = 8000.0) -> NDArray[np.int16]:
    """[samples] of a sine at 24 kHz."""
    return np.rint(loud * np.sin(2 * np.pi * hertz * np.arange(samples) / SOURCE_RATE)).astype("<i2")


def cut(samples: NDArray[np.int16], sizes: Sequence[int] = (PIECE,)) -> list[bytes]:
    """Pieces of these sizes, again and again, until nothing is left."""
    pieces, start, number = [], 0, 0
    while start < len(samples):
        size = sizes[number % len(sizes)]
        pieces.append(samples[start : start + size].tobytes())
        start, number = start + size, number + 1
    return pieces


def encode_pieces(name: str, pieces: Sequence[bytes], *, speed: float = 1.0) -> list[bytes]:
    """What comes out after each piece, and at the end."""
    encoder = make_encoder(parse_format(name), speed=speed)
    return [*[encoder.encode(piece) for piece in pieces], encoder.finish()]


def encode(name: str, samples: NDArray[np.int16], sizes: Sequence[int] = (PIECE,), *, speed: float = 1.0) -> bytes:
    """A whole response in the format of this name."""
    return b"".join(encode_pieces(name, cut(samples, sizes), speed=speed))


def decode(encoded: bytes, *, container: str | None = None) -> tuple[int, NDArray[np.float64]]:
    """Rate and samples ([n], -1 to 1) as FFmpeg hears them; without `container` it has to find out itself."""
    with av.open(io.BytesIO(encoded), "r", format=container) as source:
        stream = source.streams.audio[0]
        frames = [frame.to_ndarray() for frame in source.decode(stream)]
        joined = np.concatenate(frames, axis=1)[0]
        scale = 1 << 15 if joined.dtype == np.int16 else 1 << 31 if joined.dtype == np.int32 else 1
        return int(stream.rate), joined.astype(np.float64) / scale


def decode_piece(name: str, encoded: bytes) -> int:
    """How many samples a player that knows the format can play of the first bytes of a stream."""
    codec = parse_format(name).codec
    if codec is not Codec.MP3:
        return len(decode(encoded, container=CONTAINERS[codec])[1])
    decoder = av.CodecContext.create("mp3", "r")
    assert isinstance(decoder, AudioCodecContext)
    return sum(frame.samples for packet in decoder.parse(encoded) for frame in decoder.decode(packet))


def decode_by_libsndfile(encoded: bytes) -> tuple[int, NDArray[np.float64]]:
    """Rate and samples as libsndfile hears them.

    It reads no FLAC of unknown length, so that it is told one (RFC 9639, 8.2), which it can only reach if it is true.
    """
    if encoded.startswith(b"fLaC"):
        length = len(decode(encoded)[1])
        encoded = encoded[:18] + (int.from_bytes(encoded[18:26], "big") | length).to_bytes(8, "big") + encoded[26:]
    samples, rate = soundfile.read(io.BytesIO(encoded))
    return rate, samples


def expect(format: Format, samples: NDArray[np.int16], *, speed: float = 1.0) -> NDArray[np.float64]:
    """The samples a perfect codec would give back, -1 to 1."""
    plain = encode(f"pcm_{format.sample_rate}", samples, speed=speed)
    return np.frombuffer(plain, "<i2").astype(np.float64) / (1 << 15)


def measure_likeness(heard: NDArray[np.float64], meant: NDArray[np.float64]) -> float:
    """Signal to error in dB over the length of `meant`."""
    error = np.sum((heard[: len(meant)] - meant) ** 2)
    return float(10 * np.log10(np.sum(meant**2) / max(error, 1e-30)))
