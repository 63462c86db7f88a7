"""One context: text in, sentences to the workers, their chunks in order to the client.

Sans-I/O: methods take what happened and return what is to be done. Chunks may come twice (a worker died and another
began again), with holes (the stream was lost) or for a later sentence first; what goes out is
each sample once, in order.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator

from relay import metrics
from relay.clock import Clock
from relay.entrance.under_way import SAMPLE_RATE, UnderWay
from relay.errors import NothingToSay, RelayError, SentenceFailed, TextTooLong
from relay.native.frames import encode_frame
from relay.speaking.context_state import TRANSITIONS, Address, ContextState
from relay.speaking.outputs import Bury, Note, Output, Play, Say, Silence, Submit
from relay.speaking.sentences import Sentence, SentenceCutter
from relay.speaking.tally import Tally, TextHash
from storage.errors import IllegalTransition
from storage.streams.wire import Chunk, Failure, Job, Result

MAX_TEXT = 100_000
MAX_UNDER_WAY = 2
"""Sentences of one context with the workers at once: the one that is heard and the one that follows."""
MAX_RESUBMITS = 3
TORN_AFTER_S = 1.0
"""How long a sentence with a missing chunk waits for it; another worker may be about to send it."""


class Context:
    """The state of one context; `has_room` says whether the client keeps up with what it has been sent."""

    def __init__(self, address: Address, clock: Clock, has_room: Callable[[], bool], text_hash: TextHash) -> None:
        self.address = address
        self._has_room = has_room
        self._tally = Tally(text_hash)
        self.state = ContextState.OPEN
        self._clock = clock
        self._cutter = SentenceCutter()
        self._characters = 0
        self._waiting: deque[tuple[Sentence, float]] = deque()
        self._under_way: dict[int, UnderWay] = {}
        self._heard = 0
        self._late = 0
        self._dry_at = self._active_at = clock.monotonic()

    @property
    def closed(self) -> bool:
        """Whether the context has ended, one way or the other."""
        return not TRANSITIONS[self.state]

    @property
    def heard_until(self) -> float:
        """When the listener heard everything; infinite while sentences are to come, in the past before the first."""
        if self._under_way or self._waiting:
            return math.inf
        return self._dry_at if self._tally.samples else -math.inf

    def note(self) -> list[Note]:
        """What is to be put on record when it has ended."""
        return self._tally.note(self.address)

    def take_late(self) -> int:
        """How many chunks came too late since this was asked last."""
        late, self._late = self._late, 0
        return late

    def push(self, text: str) -> list[Output]:
        """More text; raises TextTooLong when the context has had enough."""
        if self.state is not ContextState.OPEN:
            raise IllegalTransition("context", self.state, "more text")
        if self._characters + len(text) > MAX_TEXT:
            raise TextTooLong(MAX_TEXT, "context")
        self._characters += len(text)
        self._tally.read(text)
        self._active_at = self._clock.monotonic()
        with metrics.TEXT_STAGE.time():
            sentences = self._cutter.push(text)
        return self._enqueue(sentences)

    def flush(self) -> list[Output]:
        """Speak what is there."""
        return self._enqueue(self._cutter.flush())

    def end(self) -> list[Output]:
        """No more text."""
        self._move(ContextState.ENDING)
        return [*self._enqueue(self._cutter.end()), *self._finish()]

    def cancel(self) -> list[Output]:
        """Stop now: nothing of the context follows what this returns."""
        self._move(ContextState.CANCELLED)
        return [*self._abandon(), Say({"type": "cancelled", "context": self.address.id})]

    def fail(self, error: RelayError) -> list[Output]:
        """End with an error."""
        self._move(ContextState.FAILED)
        metrics.ERRORS.labels(error.code).inc()
        return [*self._abandon(), Say({"type": "error", **error.as_dict(), "context": self.address.id})]

    def receive(self, result: Result) -> list[Output]:
        """A chunk or a failure from a worker; what is not expected (any more) is dropped."""
        sentence = self._under_way.get(result.sentence)
        if self.closed or sentence is None or sentence.complete:
            return []
        if isinstance(result, Failure):
            return self._receive_failure(sentence, result)
        if result.number != sentence.received:
            sentence.torn = sentence.torn or result.number > sentence.received
            return []
        sentence.received += 1
        sentence.torn = False
        sentence.progress_at = self._clock.monotonic()
        sentence.held.append(result)
        sentence.complete = result.last
        return self._advance()

    def pump(self) -> list[Output]:
        """Hand waiting sentences to the workers while there is room."""
        return list(self._submit_waiting())

    def resubmit_all(self) -> list[Output]:
        """Hand out again what is under way: the stream that carried it was lost."""
        return [Submit(sentence.job) for sentence in self._under_way.values() if not sentence.complete]

    def check_progress(self, sentence_timeout_s: float, idle_timeout_s: float) -> list[Output]:
        """Let time pass: have a torn sentence spoken again, and end what has waited too long.

        A sentence waits for its chunks (`timeout`), a context that is all spoken waits for its client (`idle`).
        """
        now = self._clock.monotonic()
        stalled = [sentence for sentence in self._under_way.values() if not sentence.complete]
        if any(now - sentence.progress_at > sentence_timeout_s for sentence in stalled):
            message = "no worker spoke the sentence in time; try again"
            return self.fail(SentenceFailed("timeout", message, retryable=True))
        if not self._under_way and now - self._active_at > idle_timeout_s:
            message = f"nothing was said in this context for {idle_timeout_s:g} s; open another"
            return self.fail(SentenceFailed("idle", message, retryable=True))
        torn = [s for s in stalled if s.torn and now - s.progress_at > TORN_AFTER_S]
        return [output for sentence in torn for output in self._resubmit(sentence)]

    def _enqueue(self, sentences: list[Sentence]) -> list[Output]:
        now = self._clock.monotonic()
        self._waiting.extend((sentence, now) for sentence in sentences)
        return list(self._submit_waiting())

    def _submit_waiting(self) -> Iterator[Output]:
        while self._waiting and len(self._under_way) < MAX_UNDER_WAY and self._has_room():
            sentence, completed_at = self._waiting.popleft()
            job, now = self._job(sentence), self._clock.monotonic()
            self._under_way[sentence.number] = UnderWay(job, completed_at, now, now)
            yield Say(
                {
                    "type": "sentence",
                    "context": self.address.id,
                    "sentence": sentence.number,
                    "start": sentence.start,
                    "end": sentence.end,
                }
            )
            yield Submit(job)

    def _job(self, sentence: Sentence) -> Job:
        runs_dry_in = max(0.0, self._dry_at - self._clock.monotonic())
        return Job(
            relay=self.address.relay,
            context=self.address.key,
            sentence=sentence.number,
            tenant=self.address.tenant,
            voice=self.address.voice,
            version=self.address.version,
            deadline_ms=self._clock.unix_ms() + int(1000 * runs_dry_in),
            text=sentence.text,
        )

    def _receive_failure(self, sentence: UnderWay, failure: Failure) -> list[Output]:
        if failure.code == NothingToSay.code:
            sentence.complete = True
            return self._advance()
        return self.fail(SentenceFailed(failure.code, failure.message, retryable=failure.retryable))

    def _resubmit(self, sentence: UnderWay) -> list[Output]:
        """Chunks are missing: have the sentence spoken again; what comes twice is dropped as ever."""
        if self.closed:
            return []
        sentence.torn = False
        sentence.resubmits += 1
        if sentence.resubmits > MAX_RESUBMITS:
            return self.fail(SentenceFailed("synthesis_failed", "chunks of a sentence were lost", retryable=True))
        return [Submit(sentence.job)]

    def _advance(self) -> list[Output]:
        """Play what is next in order, and go on to the next sentence when one is complete."""
        outputs: list[Output] = []
        while (sentence := self._under_way.get(self._heard)) is not None:
            while sentence.held:
                outputs.append(self._play(sentence, sentence.held.popleft()))
            if not sentence.complete:
                break
            outputs.append(self._end_sentence(sentence))
        outputs.extend(self._submit_waiting())
        return [*outputs, *self._finish()]

    def _play(self, sentence: UnderWay, chunk: Chunk) -> Output:
        now = self._clock.monotonic()
        if self._tally.samples == 0:
            metrics.TIME_TO_FIRST_AUDIO.observe(now - sentence.completed_at)
        if sentence.is_late(now, self._dry_at):
            self._late += 1
            metrics.LATE.inc()
        first = sentence.played == 0
        samples = sentence.play(chunk, now)
        self._tally.play(sentence.job.text, samples, first=first)
        self._dry_at = max(self._dry_at, now) + samples / SAMPLE_RATE
        metrics.CHUNKS.inc()
        with metrics.ENCODE_STAGE.time():
            frame = encode_frame(self.address.number, chunk.sentence, chunk.number, chunk.pcm, last=chunk.last)
        return Play(self.address.number, frame, now, samples)

    def _end_sentence(self, sentence: UnderWay) -> Output:
        del self._under_way[self._heard]
        self._heard += 1
        self._active_at = self._clock.monotonic()
        metrics.SENTENCES.inc()
        return Say(sentence.summarize(self.address.id, self._active_at))

    def _finish(self) -> list[Output]:
        if self.state is not ContextState.ENDING or self._under_way or self._waiting:
            return []
        if self._tally.samples == 0:
            return self.fail(NothingToSay())
        self._move(ContextState.DONE)
        return [
            Say(
                {
                    "type": "done",
                    "context": self.address.id,
                    "sentences": self._heard,
                    "samples": self._tally.samples,
                }
            )
        ]

    def _abandon(self) -> list[Output]:
        busy = any(not sentence.complete for sentence in self._under_way.values())
        self._waiting.clear()
        self._under_way.clear()
        self._dry_at = min(self._dry_at, self._clock.monotonic())
        silence: list[Output] = [Silence(self.address.number)]
        return [*silence, Bury(self.address.key)] if busy else silence

    def _move(self, wanted: ContextState) -> None:
        if wanted not in TRANSITIONS[self.state]:
            raise IllegalTransition("context", self.state, wanted)
        self.state = wanted
