"""What the vocoder network learns to predict: the parts of a waveform, from a teacher that knows them or from WORLD.

Levels are those of the synthesis in `worker.sv2tts.vocoder`: `harmonic` is the logarithm of the amplitude of a
sinusoid, `noise` the logarithm of the standard deviation that white noise of the same density would have.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from worker.sv2tts.envelope import bins_to_knots
from worker.sv2tts.mel import HOP_LENGTH, SAMPLE_RATE, Floats
from worker.training.render import PART_HOP, Parts

ENVELOPE_HOP = HOP_LENGTH // 2
PITCH_LEAST, PITCH_MOST = 50.0, 550.0
_DYNAMIC = 5.0
_SINE_PEAK = 300.0
_NOISE_POWER = 1800.0
_QUIET = -14.0
_HALF = np.float32(0.5)
_VOICED_BREATH = np.float32(0.3)


@dataclass(frozen=True, slots=True)
class Targets:
    """Parts on the time axis of the mel: `f0` [T] in Hz every 10 ms, 0 where unvoiced; `harmonic` and `noise`
    [2 T, 128] every 5 ms."""

    f0: Floats
    harmonic: Floats
    noise: Floats


def teacher_targets(parts: Parts, frames: int) -> Targets:
    """Targets from the teacher's parts.

    Its transform shows a sinusoid of amplitude 1 with magnitude 300, and noise of unit phases and magnitude M as a
    signal of power M^2 / 1800.
    """
    knots = bins_to_knots(parts.harmonic.shape[1])
    power = np.exp(2 * parts.free) + 2 * np.exp(2 * parts.noise)
    harmonic = parts.harmonic @ knots - np.float32(np.log(_SINE_PEAK))
    noise = _HALF * np.log(power @ knots / _NOISE_POWER + 1e-12)
    return align_targets(parts.f0, harmonic, noise, PART_HOP, frames)


def world_targets(wav: Floats, frames: int) -> Targets:
    """Targets from a WORLD analysis of float32[N] at 24 kHz (Morise et al., 2016): Harvest, CheapTrick, D4C.

    A pulse train of period P and unit density has sinusoids of amplitude 2 / sqrt(P). D4C finds less breath in voiced
    frames than listening does, by 0.3 neper.
    """
    import pyworld  # type: ignore[import-untyped]

    signal = wav.astype(np.float64)
    f0, times = pyworld.harvest(signal, SAMPLE_RATE, PITCH_LEAST, PITCH_MOST, frame_period=5.0)
    power = pyworld.cheaptrick(signal, f0, times, SAMPLE_RATE) + 1e-16
    share = np.clip(pyworld.d4c(signal, f0, times, SAMPLE_RATE) ** 2, 1e-6, 1 - 1e-6)
    knots = bins_to_knots(power.shape[1])
    density = np.log(np.maximum(f0, PITCH_LEAST)[:, None] * 4 / SAMPLE_RATE)
    harmonic = (0.5 * (np.log(power * (1 - share)) + density) @ knots).astype(np.float32)
    noise = (0.5 * np.log((power * share) @ knots)).astype(np.float32)
    noise += _VOICED_BREATH * (f0 > 0).astype(np.float32)[:, None]
    return align_targets(f0.astype(np.float32), harmonic, noise, ENVELOPE_HOP, frames)


def align_targets(f0: Floats, harmonic: Floats, noise: Floats, hop: int, frames: int) -> Targets:
    """Parts sampled every `hop` samples on the time axis of `frames` mel frames, with what is inaudible beside the
    other part, or beside silence, raised to a floor."""
    pitch = resample_pitch(f0, hop, frames)
    tones = resample_rows(harmonic, hop, ENVELOPE_HOP, 2 * frames)
    hiss = resample_rows(noise, hop, ENVELOPE_HOP, 2 * frames)
    voiced = np.repeat(pitch > 0, 2)[:, None]
    floor = np.maximum(np.where(voiced, np.maximum(tones, hiss), hiss) - _DYNAMIC, _QUIET)
    return Targets(pitch, np.maximum(tones, floor), np.maximum(hiss, floor))


def resample_rows(rows: Floats, hop: int, new_hop: int, count: int) -> Floats:
    """Rows every `hop` samples, interpolated linearly to `count` rows every `new_hop` samples."""
    position = np.minimum(np.arange(count) * (new_hop / hop), len(rows) - 1)
    before = position.astype(np.int64)
    weight = (position - before).astype(np.float32)[:, None]
    after = np.minimum(before + 1, len(rows) - 1)
    return np.asarray(rows[before] * (1 - weight) + rows[after] * weight, np.float32)


def resample_pitch(f0: Floats, hop: int, frames: int) -> Floats:
    """F0 on the mel's time axis: the nearest frame decides on voicing, the pitch is interpolated between voiced."""
    voiced: NDArray[np.intp] = np.flatnonzero(f0 > 0)
    if not voiced.size:
        return np.zeros(frames, np.float32)
    position = np.minimum(np.arange(frames) * (HOP_LENGTH / hop), len(f0) - 1)
    pitch = np.interp(position, voiced, f0[voiced])
    return np.where(f0[np.rint(position).astype(np.int64)] > 0, pitch, 0).astype(np.float32)
