"""The stages of an enrolment, for whoever waits for it."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum


class Stage(StrEnum):
    """What an enrolment is doing, in this order."""

    DECODING = "decoding"
    EXAMINING = "examining"
    EMBEDDING = "embedding"
    STORING = "storing"


Report = Callable[[Stage], None]
"""Called as a stage begins."""


def report_nothing(stage: Stage) -> None:
    """For a caller that does not ask."""
