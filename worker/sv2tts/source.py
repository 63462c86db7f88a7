"""The two sources of the vocoder: pulses at the pitch of the voice, and noise.

Both are functions of the position in the stream alone (and, for pulses, of the pitch), so that a sentence sounds the
same whatever process speaks it and however it is cut into pieces.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from worker.sv2tts.mel import HOP_LENGTH, SAMPLE_RATE, Floats, hann

TRANSFORM = 512
WINDOW = 480
HOP = 120
BINS = TRANSFORM // 2 + 1

Spectra = NDArray[np.complex64]

_HIGHEST_HARMONIC_HZ = 11_900.0
_NOISE_FRAMES = 1000
_NOISE_SEED = 20
_UNVOICED_PITCH = 100.0
_RAMP = ((np.arange(HOP_LENGTH) + 1) / HOP_LENGTH).astype(np.float64)


def frame_spectra(samples: Floats) -> Spectra:
    """Spectra complex64[T, 257] of the Hann-windowed frames of 480 samples, 120 apart, that lie within float32[N]."""
    frames = np.lib.stride_tricks.sliding_window_view(samples, WINDOW)[::HOP]
    return np.fft.rfft(frames * hann(WINDOW), TRANSFORM, axis=1).astype(np.complex64)


@cache
def noise_table() -> Spectra:
    """Spectra complex64[1000, 257] of five seconds of white noise of unit variance, their magnitudes drawn half way (in
    logarithm) to the mean: a steadier hiss than Gaussian noise, with less smear than noise of constant magnitude."""
    length = _NOISE_FRAMES * HOP
    white = np.random.Generator(np.random.Philox(_NOISE_SEED)).standard_normal(length, dtype=np.float32)
    spectra = frame_spectra(np.concatenate([white, white[: WINDOW - HOP]]))
    magnitude = np.maximum(np.abs(spectra), 1e-6)
    steadied = spectra / np.sqrt(magnitude)
    level = np.sqrt(np.mean(magnitude**2) / np.mean(np.abs(steadied) ** 2))
    return np.asarray(steadied * level, np.complex64)


def noise_spectra(first: int, count: int) -> Spectra:
    """Noise of the frames from number `first` of a stream."""
    return noise_table()[np.arange(first, first + count) % _NOISE_FRAMES]


class PulseSource:
    """A band-limited pulse train: cosines of unit amplitude at every harmonic of the pitch below 11.9 kHz.

    Pitch is linear between frames of 10 ms; where one of two neighbouring frames is unvoiced, the pitch is the other's
    and the amplitude fades.
    """

    def __init__(self) -> None:
        self._pitch = _UNVOICED_PITCH
        self._voiced = False
        self._phase = 0.0
        self._begun = False

    def extend(self, pitch: Floats, voiced: NDArray[np.bool_]) -> Floats:
        """Samples from the last frame given before to the last of these; pitch in Hz, float32 and bool of [T].

        The very first frame of a stream marks where the train begins, so that it yields T - 1 stretches of 240 samples
        then and T afterwards.
        """
        stretches = [self._stretch(float(hertz), bool(on)) for hertz, on in zip(pitch, voiced, strict=True)]
        return np.concatenate([np.zeros(0, np.float32), *(stretch for stretch in stretches if stretch is not None)])

    def _stretch(self, pitch: float, voiced: bool) -> Floats | None:
        before, was = self._pitch, self._voiced
        after = pitch if voiced else before
        before = before if was else after
        begun, self._begun = self._begun, True
        self._pitch, self._voiced = after, voiced
        if not begun:
            return None
        hertz = before + (after - before) * _RAMP
        phase = (self._phase + np.cumsum(hertz) / SAMPLE_RATE) % 1.0
        self._phase = float(phase[-1])
        gain = float(was) + (float(voiced) - float(was)) * _RAMP
        if not (was or voiced):
            return np.zeros(HOP_LENGTH, np.float32)
        return (sum_harmonics(phase, hertz) * gain).astype(np.float32)


def sum_harmonics(phase: NDArray[np.float64], hertz: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum of cos(2 pi h phase) over the harmonics h >= 1 of `hertz` below 11.9 kHz, by the Dirichlet kernel.

    `phase` is in cycles, `hertz` the pitch of each sample.
    """
    count = np.floor(_HIGHEST_HARMONIC_HZ / hertz) + 0.5
    angle = 2 * np.pi * phase
    below = 2 * np.sin(angle / 2)
    pole = np.abs(below) < 2e-3
    return np.where(pole, count, np.sin(count * angle) / np.where(pole, 1.0, below)) - 0.5
