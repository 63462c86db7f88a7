"""One context: text in, sentences to the workers, their chunks in order to the client.

Sans-I/O: methods take what happened and return what is to be done. Chunks may come twice (a worker died and another
began again), with holes (the stream was lost) or for a later sentence first; what goes out is
each sample once, in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from relay import metrics
from relay.clock import Clock
from relay.errors import NothingToSay, RelayError, SentenceFailed, UnknownPlace
from relay.speaking.context_state import ENDED, TRANSITIONS, Address, ContextState
from relay.speaking.events import SAMPLE_RATE, Cancelled, Done, Failed, Flushed, SentenceBegun
from relay.speaking.flushes import Flushes
from relay.speaking.outputs import Bury, Note, Output, Silence, Submit, Tell
from relay.speaking.script import Script
from relay.speaking.tally import Tally, TextHash
from relay.speaking.under_way import UnderWay, make_job
from storage.errors import IllegalTransition
from storage.streams.wire import Chunk, Failure, Result

MAX_UNDER_WAY = 2
"""Sentences of one context with the workers at once: the one that is heard and the one that follows."""
MAX_RESUBMITS = 3
TORN_AFTER_S = 1.0
"""How long a sentence with a missing chunk waits for it; another worker may be about to send it."""


class Context:
    """The state of one context; `has_room` says whether the client keeps up with what it has been sent."""

    def __init__(
        self,
        address: Address,
        clock: Clock,
        has_room: Callable[[], bool],
        text_hash: TextHash,
        *,
        mel: bool = False,
        speed: float = 1.0,
    ) -> None:
        self.address = address
        self.state = ContextState.OPEN
        self._has_room = has_room
        self._mel = mel
        self._speed = speed
        self._tally = Tally(text_hash)
        self._clock = clock
        self._script = Script()
        self._under_way: dict[int, UnderWay] = {}
        self._starts: list[int] = []
        """Where each sentence that was begun to be heard begins, in samples."""
        self._heard = 0
        self._had: tuple[int, int] | None = None
        """A sentence of which the client has so many chunks already."""
        self._flushes = Flushes()
        self._late = 0
        self._suspended = False
        self._dry_at = self._active_at = clock.monotonic()

    @property
    def closed(self) -> bool:
        """Whether the context has ended, one way or the other."""
        return self.state in ENDED

    @property
    def characters(self) -> int:
        """How much text there was, in code points."""
        return self._script.characters

    @property
    def heard_until(self) -> float:
        """When the listener heard everything; infinite while sentences are to come, in the past before the first.

        A listener whose connection is lost hears nothing, and takes no stream from others.
        """
        if not self._suspended and (self._under_way or self._script.waits):
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
        self._active_at = self._clock.monotonic()
        self._script.push(text, self._active_at)
        self._tally.read(text)
        return list(self._submit_waiting())

    def flush(self) -> list[Output]:
        """Speak what is there; `Flushed` says when that was done; raises TextTooLong when there were enough."""
        if self.state is not ContextState.OPEN:
            raise IllegalTransition("context", self.state, "a flush")
        self._script.flush(self._clock.monotonic())
        self._flushes.add(self._script.length)
        return [*self._submit_waiting(), *self._answer_flushes()]

    def end(self) -> list[Output]:
        """No more text."""
        self._move(ContextState.ENDING)
        self._script.end(self._clock.monotonic())
        return [*self._submit_waiting(), *self._finish()]

    def cancel(self) -> list[Output]:
        """Stop now: nothing of the context follows what this returns."""
        self._move(ContextState.CANCELLED)
        return [Silence(self.address.number), *self._abandon(), Tell(Cancelled(self.address.id))]

    def fail(self, error: RelayError) -> list[Output]:
        """End with an error, behind what is on its way to be heard."""
        self._move(ContextState.FAILED)
        metrics.ERRORS.labels(error.code).inc()
        unspoken = self._script.find_unspoken(self._heard)
        return [*self._abandon(), Tell(Failed(self.address.id, error, unspoken=unspoken))]

    def silence(self, error: RelayError) -> list[Output]:
        """End with an error, and let nothing be heard any more."""
        return [Silence(self.address.number), *self.fail(error)]

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

    def suspend(self) -> list[Output]:
        """Its connection is lost: stop the workers, and wait to be resumed from another one."""
        outputs = self._stop_workers()
        self._script.next = self._heard
        self._active_at = self._clock.monotonic()
        self._has_room = lambda: False
        self._suspended = True
        return [Silence(self.address.number), *outputs]

    def check_place(self, sentence: int, chunk: int) -> None:
        """Raises UnknownPlace for one that its client cannot have come to."""
        if sentence > self._heard or sentence < 0 or chunk < -1 or (sentence == self._script.length and chunk >= 0):
            raise UnknownPlace(self._heard)

    def resume(
        self, address: Address, has_room: Callable[[], bool], sentence: int, chunk: int, *, speed: float = 1.0
    ) -> list[Output]:
        """Go on at another address after a chunk that the client has: what came after it is spoken again."""
        self.check_place(sentence, chunk)
        self._speed = speed
        if self.state is ContextState.DONE:
            self._move(ContextState.ENDING)
        self.address, self._has_room, self._suspended = address, has_room, False
        self._heard = self._script.next = sentence
        if sentence < len(self._starts):
            self._tally.samples = self._starts[sentence]
            del self._starts[sentence:]
        self._had = (sentence, chunk + 1)
        self._flushes.rewind(sentence, chunk)
        self._active_at = self._dry_at = self._clock.monotonic()
        return [*self._submit_waiting(), *self._answer_flushes(), *self._finish()]

    def _submit_waiting(self) -> Iterator[Output]:
        while self._script.waits and len(self._under_way) < MAX_UNDER_WAY and self._has_room():
            sentence, completed_at = self._script.take()
            now = self._clock.monotonic()
            deadline_ms = self._clock.unix_ms() + int(1000 * max(0.0, self._dry_at - now))
            job = make_job(self.address, sentence, deadline_ms, mel=self._mel, speed=self._speed)
            heard = self._had[1] if self._had is not None and self._had[0] == sentence.number else 0
            self._under_way[sentence.number] = UnderWay(sentence, job, 0, completed_at, now, now, heard=heard)
            yield Tell(SentenceBegun(self.address.id, sentence.number, sentence.start, sentence.end))
            yield Submit(job)

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
            if len(self._starts) == self._heard:
                self._starts.append(self._tally.samples)
                sentence.start = self._tally.samples
            while sentence.held:
                outputs.extend(self._play(sentence, sentence.held.popleft()))
            if not sentence.complete:
                break
            outputs.append(self._end_sentence(sentence))
            outputs.extend(self._answer_flushes())
        outputs.extend(self._submit_waiting())
        return [*outputs, *self._finish()]

    def _play(self, sentence: UnderWay, chunk: Chunk) -> list[Output]:
        now = self._clock.monotonic()
        audio = sentence.make_audio(self.address, chunk, self._tally.samples, now)
        if chunk.number < sentence.heard:
            # Its client has it from before the connection was lost.
            self._tally.skip(audio.samples)
            return []
        if self._tally.samples == 0:
            metrics.TIME_TO_FIRST_AUDIO.observe(now - sentence.completed_at)
        if sentence.is_late(now, self._dry_at):
            self._late += 1
            metrics.LATE.inc()
        sentence.play(chunk, audio.samples, now)
        self._tally.play(chunk.sentence, sentence.job.text, audio.samples)
        self._dry_at = max(self._dry_at, now) + audio.samples / SAMPLE_RATE / self._speed
        metrics.CHUNKS.inc()
        return [Tell(audio)]

    def _end_sentence(self, sentence: UnderWay) -> Output:
        del self._under_way[self._heard]
        self._heard += 1
        self._active_at = self._clock.monotonic()
        metrics.SENTENCES.inc()
        return Tell(sentence.summarize(self.address.id, self._active_at))

    def _answer_flushes(self) -> Iterator[Output]:
        for number in self._flushes.answer(self._heard):
            yield Tell(Flushed(self.address.id, number))

    def _finish(self) -> list[Output]:
        if self.state is not ContextState.ENDING or self._under_way or self._script.waits:
            return []
        if self._tally.samples == 0:
            return self.fail(NothingToSay())
        self._move(ContextState.DONE)
        return [Tell(Done(self.address.id, self._heard, self._tally.samples))]

    def _abandon(self) -> list[Output]:
        outputs = self._stop_workers()
        self._script.next = self._script.length
        self._dry_at = min(self._dry_at, self._clock.monotonic())
        return outputs

    def _stop_workers(self) -> list[Output]:
        busy = any(not sentence.complete for sentence in self._under_way.values())
        self._under_way.clear()
        return [Bury(self.address.key)] if busy else []

    def _move(self, wanted: ContextState) -> None:
        if wanted not in TRANSITIONS[self.state]:
            raise IllegalTransition("context", self.state, wanted)
        self.state = wanted
