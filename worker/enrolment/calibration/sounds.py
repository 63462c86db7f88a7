"""Sounds that are no speech, made from numbers; float32 [N] at 16 kHz with an RMS of one tenth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worker.enrolment.gathering import SAMPLE_RATE, Samples

Source = np.random.Generator
_Wave = NDArray[np.float64]
_LOUDNESS = 0.1


def make_white(count: int, source: Source) -> Samples:
    """Hiss: the same power at every frequency."""
    return _level(source.standard_normal(count))


def make_pink(count: int, source: Source) -> Samples:
    """Rain, or a fan: 3 dB less an octave."""
    return _tilt(count, source, lambda hertz: 1 / np.sqrt(np.maximum(hertz, 20)))


def make_traffic(count: int, source: Source) -> Samples:
    """A street: 6 dB less an octave, swelling as cars pass."""
    swell = 1 + 0.8 * np.sin(2 * np.pi * 0.15 * np.arange(count) / SAMPLE_RATE + source.uniform(0, 6))
    return _level(_tilt(count, source, lambda hertz: 1 / np.maximum(hertz, 60)).astype(np.float64) * swell)


def make_tone(count: int, source: Source) -> Samples:
    """A dial tone: 425 Hz, half a second on and off."""
    time = np.arange(count) / SAMPLE_RATE
    return _level(np.sin(2 * np.pi * 425 * time) * (np.floor(2 * time) % 2 == 0))


def make_music(count: int, source: Source) -> Samples:
    """Chords of plucked strings, four a second, over a bass and a drum."""
    wave, step = np.zeros(count + 2 * SAMPLE_RATE), SAMPLE_RATE // 4
    scale = 220 * 2 ** (np.array([0, 2, 4, 5, 7, 9, 11, 12]) / 12)
    for start in range(0, count, step):
        for pitch in (*source.choice(scale, 3, replace=False), scale[0] / 4):
            wave[start : start + SAMPLE_RATE] += _pluck(float(pitch))
        drum = source.standard_normal(step) * np.exp(-np.arange(step) / 400)
        wave[start : start + step] += 0.5 * drum
    return _level(wave[:count])


SOUNDS: Mapping[str, Callable[[int, Source], Samples]] = {
    "white": make_white,
    "pink": make_pink,
    "traffic": make_traffic,
    "tone": make_tone,
    "music": make_music,
}


def _pluck(pitch: float) -> _Wave:
    time = np.arange(SAMPLE_RATE) / SAMPLE_RATE
    string = sum(np.sin(2 * np.pi * pitch * k * time) / k * np.exp(-3 * k * time) for k in range(1, 9))
    return np.asarray(string, np.float64)


def _tilt(count: int, source: Source, gain: Callable[[_Wave], NDArray[np.floating[Any]]]) -> Samples:
    spectrum = np.fft.rfft(source.standard_normal(count))
    frequencies = np.fft.rfftfreq(count, 1 / SAMPLE_RATE).astype(np.float64)
    return _level(np.fft.irfft(spectrum * gain(frequencies), count))


def _level(wave: NDArray[np.floating[Any]]) -> Samples:
    return np.asarray(wave * _LOUDNESS / np.sqrt(np.mean(np.square(wave))), np.float32)
