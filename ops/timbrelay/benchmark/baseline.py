"""What the same sentences cost without a service: one process, one thread, no queue, no network.

Sequentially (one sentence after the other, each to its end) as a plain worker would, and in batches of ten.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from worker.sv2tts.speech import Speech, SpeechChunk

BATCH = 10
_BUDGET_S = 8.0
"""How long each of the two may take; the sentences are repeated until then."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """Seconds of one core for a second of audio; the throughput of one thread is the inverse."""

    sequential: float
    batched: float
    rows: int
    sentences: int

    @property
    def gain(self) -> float:
        """How many times as much audio a core makes in batches."""
        return round(self.sequential / self.batched, 2)


def measure_baseline(bundle: Path, reference: Path, sentences: Sequence[str], budget_s: float = _BUDGET_S) -> Baseline:
    """Speaks with the bundle in the voice of the reference; for that long, twice."""
    from worker.enrolment.recording import read_recording
    from worker.sv2tts.bundle import Bundle
    from worker.sv2tts.encoder import SpeakerEncoder
    from worker.sv2tts.speech import SpeechModel

    loaded = Bundle.load(bundle)
    raw = reference.read_bytes()
    embedding = SpeakerEncoder(loaded).embed(read_recording(raw, max_bytes=len(raw)).samples)
    model = SpeechModel(loaded, threads=1)
    model.warm_up()

    def start(number: int) -> Speech:
        return model.start(sentences[number % len(sentences)], embedding)

    sequential = _time(start, lambda batch: model.advance(batch).outcomes, 1, budget_s)
    batched = _time(start, lambda batch: model.advance(batch).outcomes, BATCH, budget_s)
    return Baseline(round(sequential, 5), round(batched, 5), BATCH, len(sentences))


def _time(
    start: Callable[[int], Speech],
    advance: Callable[[Sequence[Speech]], Sequence[tuple[SpeechChunk, ...] | Exception]],
    rows: int,
    budget_s: float,
) -> float:
    """Seconds of this thread for a second of audio, with so many sentences at once: when one ends the next begins."""
    from worker.sv2tts.mel import SAMPLE_RATE

    began, number, samples = time.thread_time(), 0, 0
    batch: deque[Speech] = deque()
    while batch or not number or time.thread_time() - began < budget_s:
        while len(batch) < rows and (not number or time.thread_time() - began < budget_s):
            batch.append(start(number))
            number += 1
        speeches = list(batch)
        for speech, outcome in zip(speeches, advance(speeches), strict=True):
            if isinstance(outcome, Exception):
                raise outcome
            samples += sum(len(chunk.pcm) // 2 for chunk in outcome)
            if speech.decoded:
                batch.remove(speech)
    return (time.thread_time() - began) / (samples / SAMPLE_RATE)
