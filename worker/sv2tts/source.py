"""The two sources of a vocoder: pulses at the pitch of the voice, and noise.

Both are functions of the position in the stream alone (and, for pulses, of the pitch), so that a sentence sounds the
same whatever process speaks it and however it is cut into pieces.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from worker.sv2tts.mel import HOP_LENGTH, SAMPLE_RATE, Floats, hann

Spectra = NDArray[np.complex64]
Doubles = NDArray[np.float64]

OVERLAP = 4
"""Frames that lie over every sample: windows of 20 ms, 5 ms apart."""

_HOPS_PER_SECOND = 2 * SAMPLE_RATE // HOP_LENGTH
_NOISE_FRAMES = 1000
_NOISE_SEED = 20
_UNVOICED_PITCH = 100.0


@dataclass(frozen=True, slots=True)
class Grid:
    """The sample rate inside a vocoder and the length of its transforms; `transform / rate` must come out whole at
    24 kHz as well."""

    rate: int
    transform: int

    @property
    def hop(self) -> int:
        """Samples between frames."""
        return self.rate // _HOPS_PER_SECOND

    @property
    def window(self) -> int:
        """Samples of a frame."""
        return OVERLAP * self.hop

    @property
    def bins(self) -> int:
        """Numbers of a frame's spectrum, from 0 to half the rate."""
        return self.transform // 2 + 1

    @property
    def out_transform(self) -> int:
        """The length of the inverse transform, whose samples are at 24 kHz whatever the rate inside."""
        return self.transform * SAMPLE_RATE // self.rate


FULL = Grid(SAMPLE_RATE, 512)
NARROW = Grid(16_000, 384)
GRIDS = {grid.rate: grid for grid in (FULL, NARROW)}


def cut_frames(samples: Floats, grid: Grid) -> Floats:
    """The frames float32[T, window], a hop apart, that lie within float32[N]."""
    hops = samples[: len(samples) // grid.hop * grid.hop].reshape(-1, grid.hop)
    count = max(0, len(hops) - OVERLAP + 1)
    return np.concatenate([hops[part : part + count] for part in range(OVERLAP)], axis=1)


def frame_spectra(frames: Floats, grid: Grid) -> Spectra:
    """Spectra complex64[T, bins] of frames float32[T, window] under a Hann window."""
    return np.fft.rfft(frames * hann(grid.window), grid.transform, axis=1).astype(np.complex64, copy=False)


@cache
def noise_table(grid: Grid) -> Spectra:
    """Spectra complex64[1000, bins] of five seconds of white noise with the density of unit variance at 24 kHz, their
    magnitudes drawn half way (in logarithm) to the mean: a steadier hiss than Gaussian noise, with less smear than
    noise of constant magnitude."""
    length = _NOISE_FRAMES * grid.hop
    white = np.random.Generator(np.random.Philox(_NOISE_SEED)).standard_normal(length, dtype=np.float32)
    frames = cut_frames(np.concatenate([white, white[: grid.window - grid.hop]]), grid)
    spectra = frame_spectra(frames, grid)
    magnitude = np.maximum(np.abs(spectra), 1e-6)
    steadied = spectra / np.sqrt(magnitude)
    level = np.sqrt(np.mean(magnitude**2) / np.mean(np.abs(steadied) ** 2) * grid.rate / SAMPLE_RATE)
    return np.asarray(steadied * level, np.complex64)


def noise_spectra(first: int, count: int, grid: Grid) -> Spectra:
    """Noise of the frames from number `first` of a stream."""
    return noise_table(grid)[np.arange(first, first + count) % _NOISE_FRAMES]


@cache
def stretch_ramps(grid: Grid) -> tuple[Doubles, Doubles, Doubles]:
    """Over the samples of 10 ms: how much of the way is done, and how many cycles have passed for each Hz at the
    beginning and for each Hz gained until the end."""
    done = (np.arange(2 * grid.hop) + 1) / (2 * grid.hop)
    return done, (np.arange(2 * grid.hop) + 1) / grid.rate, np.cumsum(done) / grid.rate


Stretch = tuple[float, float, float, bool, bool]
"""Ten milliseconds of a pulse train: the phase in cycles before them, the pitch and whether there is voice at both
ends."""


class PulseSource:
    """A band-limited pulse train: cosines of unit amplitude at every harmonic of the pitch up to 100 Hz below half the
    rate.

    Pitch is linear between frames of 10 ms; where one of two neighbouring frames is unvoiced, the pitch is the other's
    and the amplitude fades.
    """

    def __init__(self, grid: Grid, phase: float = 0.0) -> None:
        self._grid = grid
        self._pitch = _UNVOICED_PITCH
        self._voiced = False
        self._phase = phase
        self._begun = False

    def extend(self, pitch: Floats, voiced: NDArray[np.bool_]) -> Floats:
        """Samples from the last frame given before to the last of these; pitch in Hz, float32 and bool of [T].

        The very first frame of a stream marks where the train begins, so that it yields T - 1 stretches of 10 ms then
        and T afterwards.
        """
        return sound_pulses([self.follow(pitch, voiced)], self._grid)[0]

    def follow(self, pitch: Floats, voiced: NDArray[np.bool_]) -> list[Stretch]:
        """The stretches that `extend` would sound, not sounded yet."""
        skipped = 0 if self._begun else 1
        return [self._next_stretch(hertz, on) for hertz, on in zip(pitch.tolist(), voiced.tolist(), strict=True)][
            skipped:
        ]

    def _next_stretch(self, pitch: float, voiced: bool) -> Stretch:
        before, was, phase = self._pitch, self._voiced, self._phase
        after = pitch if voiced else before
        before = before if was else after
        self._pitch, self._voiced = after, voiced
        if self._begun:
            _, steady, rising = stretch_ramps(self._grid)
            self._phase = (phase + before * float(steady[-1]) + (after - before) * float(rising[-1])) % 1.0
        self._begun = True
        return phase, before, after, was, voiced


def sound_pulses(trains: Sequence[Sequence[Stretch]], grid: Grid) -> list[Floats]:
    """The samples of several pulse trains, all at once."""
    counts = [len(train) for train in trains]
    stretches = [stretch for train in trains for stretch in train]
    samples: Floats = np.zeros((len(stretches), 2 * grid.hop), np.float32)
    loud = [number for number, (_, _, _, was, on) in enumerate(stretches) if was or on]
    if loud:
        samples[loud] = _sound([stretches[number] for number in loud], grid)
    ends = list(itertools.accumulate(counts, initial=0))
    return [samples[start:end].reshape(-1) for start, end in itertools.pairwise(ends)]


def _sound(stretches: Sequence[Stretch], grid: Grid) -> Floats:
    done, steady, rising = stretch_ramps(grid)
    phase, before, after, was, on = (column[:, None] for column in np.asarray(stretches).T)
    gained = after - before
    cycles = phase + before * steady + gained * rising
    train = sum_harmonics(cycles - np.floor(cycles), before + gained * done, grid.rate / 2 - 100)
    return np.asarray(train * (was + (on - was) * done), np.float32)


def sum_harmonics(phase: Doubles, hertz: Doubles, highest: float) -> Floats:
    """Sum of cos(2 pi h phase) over the harmonics h >= 1 of `hertz` below `highest` Hz, by the Dirichlet kernel.

    `phase` is in cycles, `hertz` the pitch of each sample. Angles are brought into one turn in double precision; their
    sines are in single, 100 dB below the pulses.
    """
    count = np.floor(highest / hertz) + 0.5
    turns = count * phase
    above = np.sin((2 * np.pi * (turns - np.floor(turns))).astype(np.float32))
    below = 2 * np.sin((np.pi * phase).astype(np.float32))
    pole = np.abs(below) < 2e-3
    return np.where(pole, count, above / np.where(pole, np.float32(1.0), below)).astype(np.float32) - np.float32(0.5)
