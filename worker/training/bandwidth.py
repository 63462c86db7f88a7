"""The bands that a recording of a low sample rate lacks, guessed from those it has.

Log-mels of full-band speech are taken as one Gaussian; what is missing is its mean given the rest. Without this, a
voice learnt from 16 kHz recordings would sound muffled at 24 kHz.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

_LOUD = 0.9
_SILENCE = -9.0
_MARGIN = 3
_RIDGE = 0.05


def count_bands(mels: Array) -> int:
    """How many of the 80 bands of a recording [frames, 80] hold speech; all when the top ones do."""
    loud = np.quantile(mels, _LOUD, axis=0)
    held = np.flatnonzero(loud > _SILENCE)
    top = int(held[-1]) + 1 if held.size else len(loud)
    return len(loud) if top >= len(loud) - 1 else max(2 * _MARGIN, top - _MARGIN)


@dataclass(frozen=True, slots=True, eq=False)
class BandModel:
    """Mean [80] and covariance [80, 80] of full-band log-mels."""

    mean: npt.NDArray[np.float64]
    covariance: npt.NDArray[np.float64]

    @classmethod
    def fit(cls, mels: npt.NDArray[np.float16]) -> "BandModel":
        """The model of full-band frames [frames, 80]."""
        sample = np.asarray(mels[:: max(1, len(mels) // 200_000)], np.float64)
        return cls(sample.mean(axis=0), np.cov(sample.T))

    def extend(self, mels: Array) -> Array:
        """Log-mels [frames, 80] with the empty bands at the top filled."""
        known = count_bands(mels)
        if known == mels.shape[1]:
            return mels
        guess = (mels[:, :known] - self.mean[:known]) @ _regression(self, known) + self.mean[known:]
        return np.concatenate([mels[:, :known], guess.astype(np.float32)], axis=1)


@lru_cache(maxsize=80)
def _regression(model: BandModel, known: int) -> npt.NDArray[np.float64]:
    inner = model.covariance[:known, :known] + _RIDGE * np.eye(known)
    return np.asarray(np.linalg.solve(inner, model.covariance[:known, known:]))
