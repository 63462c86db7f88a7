"""Mel spectrograms in plain numpy: the log-mel that synthesizer and vocoder speak, and its filter bank.

The mel scale is the one of Slaney's Auditory Toolbox (1998): linear below 1 kHz, logarithmic above, triangles of
equal area.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE = 24000
HOP_LENGTH = 240
N_FFT = 1024
WIN_LENGTH = 960
N_MELS = 80
FMIN = 0.0
FMAX = 12000.0
FLOOR = 1e-5

Floats = NDArray[np.float32]

_LINEAR_STEP_HZ = 200.0 / 3
_LOG_FROM_HZ = 1000.0
_LOG_STEP = np.log(6.4) / 27.0


def hz_to_mel(hertz: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mels of frequencies in Hz, element by element."""
    logarithmic = _LOG_FROM_HZ / _LINEAR_STEP_HZ + np.log(np.maximum(hertz, 1.0) / _LOG_FROM_HZ) / _LOG_STEP
    return np.where(hertz < _LOG_FROM_HZ, hertz / _LINEAR_STEP_HZ, logarithmic)


def mel_to_hz(mels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Frequencies in Hz of mels, element by element; the inverse of :func:`hz_to_mel`."""
    above = mels - _LOG_FROM_HZ / _LINEAR_STEP_HZ
    return np.where(above < 0, mels * _LINEAR_STEP_HZ, _LOG_FROM_HZ * np.exp(_LOG_STEP * above))


@cache
def filter_bank(sample_rate: int, n_fft: int, n_mels: int, fmin: float, fmax: float) -> Floats:
    """Triangular filters float32[n_fft // 2 + 1, n_mels], each of unit area over Hz."""
    ends = hz_to_mel(np.array([fmin, fmax]))
    corners = mel_to_hz(np.linspace(ends[0], ends[1], n_mels + 2))
    bins = np.linspace(0.0, sample_rate / 2, n_fft // 2 + 1)[:, None]
    rising = (bins - corners[:-2]) / (corners[1:-1] - corners[:-2])
    falling = (corners[2:] - bins) / (corners[2:] - corners[1:-1])
    triangles = np.maximum(0.0, np.minimum(rising, falling))
    filters: Floats = (triangles * 2.0 / (corners[2:] - corners[:-2])).astype(np.float32)
    return filters


@cache
def hann(length: int) -> Floats:
    """Periodic Hann window float32[length]."""
    return (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(length) / length)).astype(np.float32)


def magnitudes(samples: Floats, n_fft: int, hop: int, window: Floats) -> Floats:
    """Magnitude spectrogram float32[1 + N // hop, n_fft // 2 + 1] of float32[N]; frame t is centred on sample t * hop.

    The signal is taken as zero outside its ends; the window is centred in the transform.
    """
    margin = (n_fft - len(window)) // 2
    padded = np.pad(samples, n_fft // 2 - margin)
    frames = np.lib.stride_tricks.sliding_window_view(padded, len(window))[::hop]
    frames = frames[: 1 + len(samples) // hop] * window
    return np.abs(np.fft.rfft(frames, n_fft, axis=1)).astype(np.float32)


def log_mel(samples: Floats) -> Floats:
    """Log-mel float32[N // 240, 80] of float32[N] at 24 kHz: natural logarithm of magnitudes, floor 1e-5.

    Frame t is centred on sample 240 * t, so that T frames stand for exactly 240 * T samples.
    """
    spectrum = magnitudes(samples, N_FFT, HOP_LENGTH, hann(WIN_LENGTH))[: len(samples) // HOP_LENGTH]
    bands = spectrum @ filter_bank(SAMPLE_RATE, N_FFT, N_MELS, FMIN, FMAX)
    return np.asarray(np.log(np.maximum(bands, FLOOR)), np.float32)
