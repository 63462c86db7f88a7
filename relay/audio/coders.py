"""Samples to bytes: what the end of a pipeline does, and the formats that need no codec."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from relay.audio.samples import SILENCE, Samples


class Coder(Protocol):
    """The last part of an encoder."""

    def encode(self, samples: Samples) -> bytes:
        """What became final with these."""

    def finish(self) -> bytes:
        """The rest."""


class Raw:
    """Samples one by one, behind a header where there is one."""

    def __init__(self, write: Callable[[Samples], bytes], header: bytes = b"") -> None:
        self._write, self._header = write, header

    def encode(self, samples: Samples) -> bytes:
        header, self._header = self._header, b""
        return header + self._write(samples)

    def finish(self) -> bytes:
        return self.encode(SILENCE)


def to_s16(samples: Samples) -> bytes:
    """Signed 16 bits, little-endian."""
    return samples.astype("<i2", copy=False).tobytes()


def to_f32(samples: Samples) -> bytes:
    """32-bit floats from -1 to 1, little-endian."""
    return (samples.astype("<f4") / np.float32(32768)).tobytes()
