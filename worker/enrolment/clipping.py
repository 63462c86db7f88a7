"""How much of a recording was cut off at the top: runs of samples that stand at the peak."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_RUN = 3
_TOLERANCE = 1e-4
_FULL_SCALE = 1.0
_OVERSHOOT = 2.0


class FlatTops:
    """Counts, channel by channel and block by block, samples in runs of three or more at the peak so far.

    A lossy codec lets a cut-off wave swing a little above full scale, so up to twice full scale counts as full;
    beyond that the file has a scale of its own. A run that crosses two blocks counts by its parts.
    """

    def __init__(self, channels: int) -> None:
        self._ceilings = np.zeros(channels)
        self._counts = np.zeros(channels, np.int64)
        self._frames = 0

    def add(self, block: NDArray[np.float32]) -> None:
        """Takes the next samples, float32 [N, channels], all finite."""
        heights = np.abs(block.astype(np.float64))
        peaks = heights.max(axis=0)
        full = (peaks > _FULL_SCALE) & (peaks <= _OVERSHOOT)
        ceilings = np.maximum(self._ceilings, np.where(full, _FULL_SCALE, peaks))
        self._counts[ceilings > self._ceilings * (1 + _TOLERANCE)] = 0
        self._ceilings = ceilings
        self._counts += _count_in_runs((heights >= ceilings * (1 - _TOLERANCE)) & (ceilings > 0))
        self._frames += len(block)

    def share(self) -> float:
        """The share (0-1) of samples in flat tops, of the channel that has most of them."""
        return float(self._counts.max(initial=0) / max(self._frames, 1))


def _count_in_runs(high: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Samples of each channel that stand in runs of `_RUN` or more; `high` is bool [N, channels]."""
    starts = high[: -_RUN + 1].copy()
    for shift in range(1, _RUN):
        starts &= high[shift : len(high) - _RUN + 1 + shift]
    inside = np.zeros_like(high)
    for shift in range(_RUN):
        inside[shift : shift + len(starts)] |= starts
    counts: NDArray[np.int64] = inside.sum(axis=0)
    return counts
