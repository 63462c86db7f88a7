"""What a recording sounds like, in figures: its levels, its noise, its bandwidth; of mono float32 [N] at 16 kHz."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from worker.enrolment.gathering import SAMPLE_RATE, Samples
from worker.enrolment.voice_activity import CHUNK, Probabilities

SILENCE_DB = -60.0
"""The level, in dB of full scale (RMS), below which nothing is taken for sound."""

MOST_SNR_DB = 60.0
"""The signal-to-noise ratio above which there is nothing to tell apart."""

_Figures = NDArray[np.float64]

_HOP = SAMPLE_RATE // 100
_FRAME = 2 * _HOP
_LEAST_POWER = 1e-12
_LOUD_PERCENTILE = 95
_SOUND_BELOW_LOUD_DB = 30.0

_BIN_HZ = SAMPLE_RATE / CHUNK
_LOWEST_BIN, _HIGHEST_BIN = round(100 / _BIN_HZ), round(7600 / _BIN_HZ)
_SPEECH, _QUIET = 0.5, 0.1
_LEAST_QUIET = 7
_BAND_BINS = 8
_LOW_PERCENTILE = 10
_LOW_TO_MEAN = 1.8
_AUDIBLE_BELOW_PEAK_DB = 65.0


def measure_levels(samples: Samples) -> _Figures:
    """The level of each frame of 20 ms, every 10 ms, in dB of full scale (RMS)."""
    count = max(len(samples) - _FRAME, 0) // _HOP + 1
    padded = np.zeros(max(len(samples), (count - 1) * _HOP + _FRAME))
    padded[: len(samples)] = samples
    frames = np.lib.stride_tricks.sliding_window_view(padded, _FRAME)[::_HOP][:count]
    levels: _Figures = 10 * np.log10(np.square(frames).mean(axis=1) + _LEAST_POWER)
    return levels


def measure_loudness(levels: _Figures) -> float:
    """The level of the loud parts: the 95th percentile of what is no silence, in dB of full scale."""
    heard = levels[levels > SILENCE_DB]
    return float(np.percentile(heard, _LOUD_PERCENTILE)) if len(heard) else SILENCE_DB


def measure_sound(levels: _Figures) -> float:
    """Seconds that are not far (30 dB) below the loud parts."""
    least = max(SILENCE_DB, measure_loudness(levels) - _SOUND_BELOW_LOUD_DB)
    return float(np.count_nonzero(levels > least) * _HOP / SAMPLE_RATE)


def measure_snr(samples: Samples, probabilities: Probabilities) -> float:
    """Speech over noise between 100 and 7600 Hz, in dB, 60 at the most.

    The noise is what is heard between the words. Where nobody ever pauses, it is what each band of 250 Hz never
    falls below.
    """
    bins = _spectra(samples)[:, _LOWEST_BIN:_HIGHEST_BIN]
    powers = bins.sum(axis=1)
    speaking, quiet = probabilities > _SPEECH, _find_quiet(probabilities)
    if not speaking.any():
        return 0.0
    whole = float(powers[speaking].mean())
    noise = float(np.median(powers[quiet])) if quiet.sum() >= _LEAST_QUIET else _floor(bins)
    return _ratio_db(max(whole - noise, whole * 1e-2), noise)


def measure_bandwidth(samples: Samples, probabilities: Probabilities) -> float:
    """The highest frequency in Hz at which the speech is less than 65 dB below its strongest band."""
    speaking = probabilities > _SPEECH
    if not speaking.any():
        return 0.0
    levels = 10 * np.log10(_bands(_spectra(samples)[speaking]).mean(axis=0) + _LEAST_POWER)
    audible = np.flatnonzero(levels > levels.max() - _AUDIBLE_BELOW_PEAK_DB)
    return float((audible[-1] + 1) * _BAND_BINS * _BIN_HZ)


def _spectra(samples: Samples) -> _Figures:
    """Power spectra float64 [chunks, CHUNK / 2] of each chunk of the voice activity detector, Hann window."""
    chunks = np.pad(samples.astype(np.float64), (0, -len(samples) % CHUNK)).reshape(-1, CHUNK)
    spectra: _Figures = np.square(np.abs(np.fft.rfft(chunks * np.hanning(CHUNK), axis=1)))[:, : CHUNK // 2]
    return spectra


def _bands(bins: _Figures) -> _Figures:
    count = bins.shape[1] // _BAND_BINS
    means: _Figures = bins[:, : count * _BAND_BINS].reshape(len(bins), count, _BAND_BINS).mean(axis=2)
    return means


def _find_quiet(probabilities: Probabilities) -> NDArray[np.bool_]:
    """Chunks without speech whose neighbours have none either: the ends of words are no noise."""
    quiet = np.pad(probabilities < _QUIET, 1, constant_values=True)
    alone: NDArray[np.bool_] = quiet[1:-1] & quiet[:-2] & quiet[2:]
    return alone


def _floor(bins: _Figures) -> float:
    """The noise by its minima: a low percentile of each band, raised to the mean that such noise has."""
    lowest = np.percentile(_bands(bins), _LOW_PERCENTILE, axis=0)
    return float(lowest.sum() * _BAND_BINS * _LOW_TO_MEAN)


def _ratio_db(signal: float, noise: float) -> float:
    return float(min(10 * np.log10((signal + _LEAST_POWER) / (noise + _LEAST_POWER)), MOST_SNR_DB))
