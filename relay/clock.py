"""The two times a relay needs, so that tests can give their own."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def monotonic(self) -> float:
        """Seconds that never go back, for intervals."""

    def unix_ms(self) -> int:
        """Milliseconds since 1970, for what other machines compare."""


@dataclass(frozen=True, slots=True)
class SystemClock:
    """The machine's own time."""

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    def unix_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000
