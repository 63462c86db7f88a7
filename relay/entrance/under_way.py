"""A sentence that is with the workers: what came of it, and how long it took. Plain bookkeeping over given times."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from relay import metrics
from storage.streams.wire import Chunk, Job

SAMPLE_RATE = 24_000
BYTES_PER_SAMPLE = 2
PROMISE_S = 0.2
"""Within this time of its text a sentence is owed its first audio."""
TOLERANCE_S = 0.002
"""Below this nobody hears a gap."""


@dataclass(slots=True)
class UnderWay:
    """A sentence between its job and its last chunk; times are the clock's `monotonic`."""

    job: Job
    completed_at: float
    submitted_at: float
    progress_at: float
    received: int = 0
    played: int = 0
    samples: int = 0
    resubmits: int = 0
    complete: bool = False
    torn: bool = False
    first_audio_at: float | None = None
    overhead_s: float | None = None
    """What the first chunk waited for besides its computing; None when the worker did not say."""
    held: deque[Chunk] = field(default_factory=deque)

    def is_late(self, now: float, dry_at: float) -> bool:
        """Whether its next chunk, played now, was owed before: the listener is dry and the text has been there long."""
        return now > max(dry_at, self.submitted_at + PROMISE_S) + TOLERANCE_S

    def play(self, chunk: Chunk, now: float) -> int:
        """Count a chunk that goes to the client; its samples."""
        if self.first_audio_at is None:
            self.first_audio_at = now
            if chunk.computed_us:
                self.overhead_s = max(now - self.submitted_at - chunk.computed_us / 1e6, 0.0)
                metrics.OVERHEAD.observe(self.overhead_s)
        samples = len(chunk.pcm) // BYTES_PER_SAMPLE
        self.played += 1
        self.samples += samples
        return samples

    def summarize(self, context: str, now: float) -> dict[str, object]:
        """The `sentence_end` message."""
        first = (self.first_audio_at or self.submitted_at) - self.submitted_at
        return {
            "type": "sentence_end",
            "context": context,
            "sentence": self.job.sentence,
            "chunks": self.played,
            "samples": self.samples,
            "first_audio_ms": round(1000 * first, 1),
            "overhead_ms": None if self.overhead_s is None else round(1000 * self.overhead_s, 1),
            "total_ms": round(1000 * (now - self.submitted_at), 1),
        }
