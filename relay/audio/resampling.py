"""Another sample rate, in a stream."""

from __future__ import annotations

import numpy as np
import soxr

from relay.audio.samples import SILENCE, Samples

QUALITY = "MQ"
"""soxr's for 16 bits: images and aliases under -80 dB, flat to 0.9 of the band, and it holds back 8 to 14 ms; the next
better one holds back 5 ms more for what 16 bits cannot carry."""


class Resampler:
    """Takes n samples at `source` Hz to ceil(n * target / source) at `target` Hz, however they are cut into pieces.

    Rounded up, so that not even a single sample comes out as nothing.
    """

    def __init__(self, source: int, target: int) -> None:
        self._source, self._target = source, target
        self._stream = soxr.ResampleStream(source, target, 1, dtype="float32", quality=QUALITY)
        self._taken = self._given = 0

    def push(self, samples: Samples) -> Samples:
        self._taken += len(samples)
        return self._resample(samples, last=False) if len(samples) else SILENCE

    def finish(self) -> Samples:
        """soxr rounds a length to the nearest; some silence at the end makes it give the sample in doubt as well."""
        missing = -(-self._taken * self._target // self._source) - self._given
        silence = np.zeros(self._source // self._target + 2, np.int16)
        return self._resample(silence, last=True)[:missing]

    def _resample(self, samples: Samples, *, last: bool) -> Samples:
        resampled = self._stream.resample_chunk(samples.astype(np.float32), last=last)
        self._given += len(resampled)
        return np.asarray(np.clip(np.rint(resampled), -32768, 32767), np.int16)
