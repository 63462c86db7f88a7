"""Spectral envelopes on knots: the coarse frequency axis that the vocoder network predicts on.

128 knots lie evenly on the mel scale from 0 to 12 kHz, about as far apart as harmonics of the lowest voices at the
bottom and 330 Hz at the top. Between knots an envelope is linear in its logarithm.
"""

from functools import cache

import numpy as np

from worker.sv2tts.mel import FMAX, Floats, hz_to_mel, mel_to_hz

KNOTS = 128
NARROW_KNOTS = 114
"""So many of them carry a spectrum up to 8 kHz: the last is the first above."""


@cache
def knot_frequencies() -> Floats:
    """Frequencies float32[128] of the knots in Hz."""
    return mel_to_hz(np.linspace(0.0, hz_to_mel(np.array([FMAX]))[0], KNOTS)).astype(np.float32)


@cache
def knots_to_bins(bins: int, knots: int = KNOTS, top: float = FMAX) -> Floats:
    """Matrix float32[knots, bins] that interpolates the first knots to evenly spaced bins from 0 to `top` Hz."""
    frequencies = np.linspace(0.0, top, bins)
    rows = np.eye(KNOTS)[:knots]
    return np.stack([np.interp(frequencies, knot_frequencies(), row) for row in rows]).astype(np.float32)


@cache
def bins_at_knots(bins: int, knots: int = KNOTS) -> Floats:
    """Matrix float32[bins, knots] that reads evenly spaced bins from 0 to 12 kHz at the first knots, between bins
    linearly."""
    frequencies = np.linspace(0.0, FMAX, bins)
    rows = [np.interp(knot_frequencies()[:knots], frequencies, row) for row in np.eye(bins)]
    return np.stack(rows).astype(np.float32)


@cache
def bins_to_knots(bins: int) -> Floats:
    """Matrix float32[bins, 128] of the averages of evenly spaced bins around each knot, weighted by triangles.

    Where knots are closer than bins it interpolates instead.
    """
    frequencies = np.linspace(0.0, FMAX, bins)
    spread = knots_to_bins(bins).T.astype(np.float64)
    total = spread.sum(axis=0)
    interpolation = np.stack([np.interp(knot_frequencies(), frequencies, row) for row in np.eye(bins)])
    dense = np.diff(knot_frequencies(), append=2 * FMAX) > 1.5 * FMAX / (bins - 1)
    return np.where(dense, spread / np.maximum(total, 1e-9), interpolation).astype(np.float32)
