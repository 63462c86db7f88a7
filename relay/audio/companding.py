"""µ-law and A-law (ITU-T G.711), by tables over all samples."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relay.audio.samples import Samples

_BIAS = 33 << 2
_CLIP = 32635


def to_ulaw(samples: Samples) -> bytes:
    """One byte a sample (G.711, table 2)."""
    return _ULAW[samples.view(np.uint16)].tobytes()


def to_alaw(samples: Samples) -> bytes:
    """One byte a sample (G.711, table 1), even bits inverted."""
    return _ALAW[samples.view(np.uint16)].tobytes()


def _all_samples() -> NDArray[np.int64]:
    return np.arange(65536, dtype=np.uint16).view(np.int16).astype(np.int64)


def _find_segments(magnitudes: NDArray[np.int64], lowest: int) -> NDArray[np.int64]:
    """The number of the highest bit above `lowest`, 0 to 7."""
    return sum((magnitudes >> bit > 0).astype(np.int64) for bit in range(lowest + 1, lowest + 8))  # type: ignore[return-value]


def _tabulate_ulaw() -> NDArray[np.uint8]:
    samples = _all_samples()
    magnitudes = np.minimum(np.abs(samples), _CLIP) + _BIAS
    segments = _find_segments(magnitudes, 7)
    codes = segments << 4 | magnitudes >> segments + 3 & 0x0F
    return np.where(samples < 0, ~codes & 0x7F, ~codes & 0xFF).astype(np.uint8)


def _tabulate_alaw() -> NDArray[np.uint8]:
    samples = _all_samples()
    magnitudes = np.where(samples < 0, ~samples, samples)
    segments = _find_segments(magnitudes, 7)
    codes = segments << 4 | magnitudes >> np.maximum(segments, 1) + 3 & 0x0F
    return np.asarray(np.where(samples < 0, codes, codes | 0x80) ^ 0x55, np.uint8)


_ULAW, _ALAW = _tabulate_ulaw(), _tabulate_alaw()
