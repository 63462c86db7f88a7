"""Spectrograms as PNG files (W3C, "Portable Network Graphics", 2003), written with nothing but zlib."""

import struct
import zlib
from functools import cache

import numpy as np
from numpy.typing import NDArray

from worker.sv2tts.mel import Floats, log_mel

_LOUDEST, _QUIETEST = 2.0, -7.0
_LEVELS = 48
_FRAMES_PER_PIXEL = 2
_STOPS = ((8, 6, 22), (72, 18, 96), (162, 46, 96), (232, 96, 60), (250, 190, 90), (252, 252, 210))

Bytes = NDArray[np.uint8]


def encode_png(pixels: Bytes, colours: Bytes) -> bytes:
    """A palette image: `pixels` uint8[height, width] are rows of `colours` uint8[N, 3].

    Raises ValueError when a pixel has no colour.
    """
    if pixels.size == 0 or int(pixels.max()) >= len(colours):
        raise ValueError("an image needs pixels, and a colour for each")
    height, width = pixels.shape
    rows = np.pad(pixels, ((0, 0), (1, 0)))
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    lines = zlib.compress(rows.tobytes(), 9)
    parts = ((b"IHDR", header), (b"PLTE", colours.tobytes()), (b"IDAT", lines), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts)


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


@cache
def palette() -> Bytes:
    """Colours uint8[48, 3] from dark to light."""
    stops = np.asarray(_STOPS, np.float64)
    places = np.linspace(0, len(stops) - 1, _LEVELS)
    channels = [np.interp(places, np.arange(len(stops)), stops[:, channel]) for channel in range(3)]
    return np.stack(channels, axis=1).round().astype(np.uint8)


def draw_spectrogram(wav: Floats) -> bytes:
    """The log-mel of float32[N] at 24 kHz as a PNG: low bands at the bottom, 20 ms a pixel."""
    mel = log_mel(wav)
    frames = max(_FRAMES_PER_PIXEL, len(mel) // _FRAMES_PER_PIXEL * _FRAMES_PER_PIXEL)
    mel = np.pad(mel, ((0, max(0, frames - len(mel))), (0, 0)), constant_values=_QUIETEST)[:frames]
    bands = mel.reshape(-1, _FRAMES_PER_PIXEL, mel.shape[1]).mean(axis=1)
    level = np.clip((bands - _QUIETEST) / (_LOUDEST - _QUIETEST), 0, 1)
    return encode_png((level * (_LEVELS - 1)).round().astype(np.uint8).T[::-1], palette())
