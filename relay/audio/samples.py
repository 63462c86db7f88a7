"""Samples between the stages of an encoder."""

from __future__ import annotations

from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Samples: TypeAlias = NDArray[np.int16]
"""[n], mono, at the rate of the stage they come from."""

SILENCE: Samples = np.zeros(0, np.int16)
"""No samples at all."""


class Stage(Protocol):
    """Samples in, fewer or more samples out, all of them by the end."""

    def push(self, samples: Samples) -> Samples:
        """What became final with these."""

    def finish(self) -> Samples:
        """The rest."""
