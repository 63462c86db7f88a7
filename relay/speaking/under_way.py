"""A sentence that is with the workers: what came of it, and how long it took. Plain bookkeeping over given times."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from relay import metrics
from relay.speaking.context_state import Address
from relay.speaking.events import SAMPLE_RATE, Audio, SentenceEnded, Word
from relay.speaking.sentences import Sentence
from storage.streams.wire import Chunk, Job

PROMISE_S = 0.2
"""Within this time of its text a sentence is owed its first audio."""
TOLERANCE_S = 0.002
"""Below this nobody hears a gap."""


@dataclass(slots=True)
class UnderWay:
    """A sentence between its job and its last chunk; times are the clock's `monotonic`."""

    sentence: Sentence
    job: Job
    start: int
    """Where it begins in the audio of its context, in samples."""
    completed_at: float
    submitted_at: float
    progress_at: float
    heard: int = 0
    """How many of its first chunks the client has from before its connection was lost."""
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

    def make_audio(self, address: Address, chunk: Chunk, start: int, now: float) -> Audio:
        """A chunk as it goes to the client; `start` is where it begins in the context's audio, in samples."""
        return Audio(
            context=address.id,
            number=address.number,
            sentence=chunk.sentence,
            chunk=chunk.number,
            pcm=chunk.pcm,
            last=chunk.last,
            start_s=start / SAMPLE_RATE,
            ready_at=now,
            ttfa_ms=round(1000 * (now - self.completed_at)),
            words=tuple(self.time_words(chunk)),
            mel=chunk.mel,
        )

    def play(self, chunk: Chunk, samples: int, now: float) -> None:
        """Count a chunk that goes to the client."""
        if self.first_audio_at is None:
            self.first_audio_at = now
            if chunk.computed_us:
                self.overhead_s = max(now - self.submitted_at - chunk.computed_us / 1e6, 0.0)
                metrics.OVERHEAD.observe(self.overhead_s)
        self.played += 1
        self.samples += samples

    def time_words(self, chunk: Chunk) -> Iterator[Word]:
        """The words that are complete with a chunk, on the time of the context's audio."""
        begins_s = self.start / SAMPLE_RATE
        for timing in chunk.words:
            if timing.word < len(self.sentence.words):
                word = self.sentence.words[timing.word]
                start_s, end_s = begins_s + timing.start_ms / 1000, begins_s + timing.end_ms / 1000
                yield Word(word.text, word.start, word.end, start_s, end_s)

    def summarize(self, context: str, now: float) -> SentenceEnded:
        """What there is to say of it when its last chunk is played."""
        first = (self.first_audio_at or self.submitted_at) - self.submitted_at
        return SentenceEnded(
            context=context,
            sentence=self.job.sentence,
            chunks=self.played,
            samples=self.samples,
            first_audio_ms=round(1000 * first, 1),
            overhead_ms=None if self.overhead_s is None else round(1000 * self.overhead_s, 1),
            total_ms=round(1000 * (now - self.submitted_at), 1),
        )


def make_job(address: Address, sentence: Sentence, deadline_ms: int, *, mel: bool, speed: float) -> Job:
    """What the workers are to speak for a context, by when its listener runs dry."""
    return Job(
        relay=address.relay,
        context=address.key,
        sentence=sentence.number,
        tenant=address.tenant,
        voice=address.voice,
        version=address.version,
        deadline_ms=deadline_ms,
        text=sentence.text,
        mel=mel,
        speed_percent=round(100 * speed),
    )
