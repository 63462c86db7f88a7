"""What one run has measured, as it is measured. Times in seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """The counts and samples of all agents of a run."""

    first_audio_s: list[float] = field(default_factory=list)
    """From sending the token that completes the first clause to the first frame, a turn each."""

    relay_first_audio_s: list[float] = field(default_factory=list)
    """As the relay says: from the first complete clause to its first audio."""

    overhead_s: list[float] = field(default_factory=list)
    """The part of it in which nothing was computed for the sentence, as relay and worker say."""

    gaps_s: list[float] = field(default_factory=list)
    """Between two frames of one sentence."""

    lags_s: list[float] = field(default_factory=list)
    """How late this program itself was with each token."""

    turns: int = 0
    interrupted: int = 0
    underruns: int = 0
    silence_s: float = 0.0
    audio_s: float = 0.0
    sentences_s: float = 0.0
    """The sum of what the sentences took, each from its hand-over to the workers to its last chunk."""

    spoken_s: float = 0.0
    """The audio of those sentences."""

    refused: int = 0
    refused_users: set[int] = field(default_factory=set)
    errors: dict[str, int] = field(default_factory=dict)

    def count_error(self, error: Exception) -> None:
        code = str(getattr(error, "code", type(error).__name__))
        self.errors[code] = self.errors.get(code, 0) + 1


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed (nearest rank); 0 without values."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] if ordered else 0.0
