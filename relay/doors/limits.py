"""How long a connection may keep others waiting, and how long its chunks are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The same for every door of a relay process; seconds, but for the chunks."""

    send_timeout_s: float
    idle_timeout_s: float
    sentence_timeout_s: float
    chunk_ms: int = 80
    life_s: float = 14_400.0
    resume_window_s: float = 15.0
