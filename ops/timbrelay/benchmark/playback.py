"""A listener's player, simulated: plays at real time what has arrived, with no buffer beyond it. Plain arithmetic."""

from __future__ import annotations

import math

TOLERANCE_S = 0.002
"""Below this nobody hears a gap, and a clock's own unevenness is as large."""

OWED_AFTER_S = 0.2
"""A sentence is owed this long after its text was complete: a pause of the language model is no fault of the speech."""


class Playback:
    """One utterance. Times are seconds on any one clock."""

    def __init__(self) -> None:
        self.underruns = 0
        self.silence_s = 0.0
        self._runs_dry_at: float | None = None

    def push(self, now: float, audio_s: float, complete_at: float = -math.inf) -> None:
        """Audio of this length has arrived, of a sentence whose text was complete at `complete_at`.

        When the player had run dry before, that was an underrun, unless the sentence was not owed yet.
        """
        if self._runs_dry_at is None:
            self._runs_dry_at = now
        elif (gap_s := now - max(self._runs_dry_at, complete_at + OWED_AFTER_S)) > TOLERANCE_S:
            self.underruns += 1
            self.silence_s += gap_s
        self._runs_dry_at = max(self._runs_dry_at, now) + audio_s

    def left(self, now: float) -> float:
        """Seconds until everything that has arrived is played."""
        return max(self._runs_dry_at - now, 0.0) if self._runs_dry_at is not None else 0.0
