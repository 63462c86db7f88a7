"""Another sample rate, in a stream."""

from __future__ import annotations

import numpy as np
import soxr

from relay.audio.samples import SILENCE, Samples


class Resampler:
    """Takes n samples at `source` Hz to ceil(n * target / source) at `target` Hz, however they are cut into pieces.

    Rounded up, so that not even a single sample comes out as nothing. soxr's engine for variable rates is what a stream
    needs: it filters sample by sample and holds back the same 10 ms at all times (25 at 8 kHz), where the one for fixed
    rates works in blocks and holds back up to 75. Aliases are below -100 dB with both.
    """

    def __init__(self, source: int, target: int) -> None:
        self._source, self._target = source, target
        self._stream = soxr.ResampleStream(source, target, 1, dtype="float32", quality="HQ", vr=True)
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
