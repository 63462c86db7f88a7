"""Where in a recording somebody speaks, by energy alone: frames of 20 ms, every 10 ms.

A frame is speech if it is well above the noise floor of this recording and not far below its loud parts; what is
shorter than a syllable is a click. Pauses inside are shortened, since the encoder listens to whatever it gets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]

SAMPLE_RATE = 16_000
"""Samples a second of every reference recording."""

MARGIN = SAMPLE_RATE // 10
"""Samples (100 ms) that stay before and after speech."""

LONGEST_PAUSE = SAMPLE_RATE * 6 // 10
"""Samples (600 ms) that a pause may have; a longer one is shortened to it."""

SILENCE_DB = -60.0
"""The level, in dB of full scale (RMS), below which nothing is taken for speech."""

_HOP = SAMPLE_RATE // 100
_FRAME = 2 * _HOP
_CLICK_FRAMES = 6
_LOUD_PERCENTILE = 95
_NOISE_PERCENTILE = 10
_ABOVE_NOISE_DB = 6.0
_BELOW_LOUD_DB = 40.0
_NEAREST_TO_LOUD_DB = 12.0
_FADE = SAMPLE_RATE // 200
_LEAST_POWER = 1e-12


@dataclass(frozen=True, slots=True)
class Span:
    """Samples from `start` up to `end`."""

    start: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.start


def measure_levels(samples: Samples) -> NDArray[np.float64]:
    """The level of each frame, dB of full scale (RMS), of float32 [N] at 16 kHz."""
    count = max(len(samples) - _FRAME, 0) // _HOP + 1
    padded = np.zeros(max(len(samples), (count - 1) * _HOP + _FRAME))
    padded[: len(samples)] = samples
    frames = np.lib.stride_tricks.sliding_window_view(padded, _FRAME)[::_HOP][:count]
    levels: NDArray[np.float64] = 10 * np.log10(np.square(frames).mean(axis=1) + _LEAST_POWER)
    return levels


def find_speech(samples: Samples) -> list[Span]:
    """The stretches of speech in float32 [N] at 16 kHz; those with at most `LONGEST_PAUSE` between are one."""
    speaks = np.concatenate(([False], _find_loud(measure_levels(samples)), [False]))
    edges = np.flatnonzero(speaks[1:] != speaks[:-1])
    spans: list[Span] = []
    for first, last in edges.reshape(-1, 2):
        if last - first < _CLICK_FRAMES:
            continue
        span = Span(int(first) * _HOP, min(int(last - 1) * _HOP + _FRAME, len(samples)))
        if spans and span.start - spans[-1].end <= LONGEST_PAUSE:
            span = Span(spans.pop().start, span.end)
        spans.append(span)
    return spans


def join_speech(samples: Samples, spans: list[Span]) -> Samples:
    """The spans in order, with `MARGIN` at both ends and pauses of `LONGEST_PAUSE`, faded into each other."""
    half = LONGEST_PAUSE // 2
    last = len(spans) - 1
    joined = np.zeros(0, np.float32)
    for number, span in enumerate(spans):
        start = max(span.start - (MARGIN if number == 0 else half), 0)
        end = min(span.end + (MARGIN if number == last else half), len(samples))
        joined = _fade_into(joined, samples[start:end])
    return joined


def _find_loud(levels: NDArray[np.float64]) -> NDArray[np.bool_]:
    heard = levels[levels > SILENCE_DB]
    if not len(heard):
        return np.zeros(len(levels), np.bool_)
    loud = np.percentile(heard, _LOUD_PERCENTILE)
    noise = np.percentile(levels, _NOISE_PERCENTILE)
    least = max(SILENCE_DB, loud - _BELOW_LOUD_DB, min(noise + _ABOVE_NOISE_DB, loud - _NEAREST_TO_LOUD_DB))
    return levels > least


def _fade_into(before: Samples, after: Samples) -> Samples:
    """One after the other, overlapped by 5 ms, so that two noise floors meet without a click."""
    width = min(_FADE, len(before), len(after))
    if not width:
        return np.concatenate((before, after)).astype(np.float32)
    rise = (np.arange(width, dtype=np.float32) + 0.5) / np.float32(width)
    middle = before[-width:] * (1 - rise) + after[:width] * rise
    return np.concatenate((before[:-width], middle, after[width:])).astype(np.float32)
