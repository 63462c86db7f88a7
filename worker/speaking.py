"""One job, from its delivery to its acknowledgement."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

import structlog

from storage.errors import DecryptionError, ServerUnavailable
from storage.streams.jobs import Delivery, JobStream
from storage.streams.results import ResultPublisher, Verdict
from storage.streams.wire import Chunk, Failure
from worker import metrics
from worker.embeddings import EmbeddingCache
from worker.engine import Engine, Request, Sound, Stream
from worker.errors import NonFinite, NothingToSay, VoiceUnavailable
from worker.sv2tts.mel import SAMPLE_RATE

log = structlog.get_logger()

LATEST_S = 5.0
EARLIEST_S = 120.0
"""How far a deadline may lie from now to either side: clocks of machines differ, and a wild one moves nobody else."""
END_WITHIN_S = 2.0
"""How long what is spoken with a silenced voice may take to end; it takes a round trip to Redis."""
_UNREADABLE = "the voice cannot be opened by this service; enrol it again"


@dataclass(slots=True)
class _Progress:
    """How far a job is."""

    taken_at: float
    needed_at: float
    number: int = 0
    sent_s: float = 0.0


@dataclass(slots=True, eq=False)
class _Attempt:
    """One job that is being spoken, from its delivery on."""

    voice: UUID
    stream: Stream | None = None
    revoked: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def check(self) -> None:
        """Raises VoiceUnavailable when the voice was silenced meanwhile."""
        if self.revoked:
            raise VoiceUnavailable(str(self.voice))


class Speaking:
    """Speaks jobs; any number at once, each in a task of its own."""

    def __init__(
        self,
        engine: Engine,
        embeddings: EmbeddingCache,
        jobs: JobStream,
        publisher: ResultPublisher,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._engine = engine
        self._embeddings = embeddings
        self._jobs = jobs
        self._publisher = publisher
        self._clock = clock
        self._wall_clock = wall_clock
        self._attempts: set[_Attempt] = set()

    async def speak(self, delivery: Delivery, *, claimed: bool = False) -> None:
        """Synthesize and publish the job's chunks, and acknowledge it with the last, or with its failure.

        When Redis goes away in the middle the job stays unacknowledged: whoever claims it starts from its first chunk,
        and the relay drops the ones it has.
        """
        attempt = _Attempt(delivery.job.voice)
        self._attempts.add(attempt)
        try:
            metrics.JOBS.labels(await self._conclude(delivery, attempt, claimed=claimed)).inc()
        finally:
            self._attempts.discard(attempt)
            attempt.ended.set()

    async def _conclude(self, delivery: Delivery, attempt: _Attempt, *, claimed: bool) -> str:
        """How the attempt ended, once its listener was told."""
        job = delivery.job
        try:
            return await self._attempt(delivery, attempt, claimed=claimed)
        except ServerUnavailable as error:
            if error.server == "Redis":
                return "interrupted"
            return await self._fail(delivery, error.code, str(error), retryable=True)
        except (NothingToSay, VoiceUnavailable) as error:
            return await self._fail(delivery, error.code, str(error), retryable=False)
        except NonFinite as error:
            metrics.NON_FINITE.labels(error.stage).inc()
            log.error("a model gave what is no number", stage=error.stage, voice=str(job.voice))
            return await self._fail(delivery, error.code, str(error), retryable=error.retryable)
        except DecryptionError as error:
            log.error("a voice cannot be opened", voice=str(job.voice), reason=str(error))
            return await self._fail(delivery, VoiceUnavailable.code, _UNREADABLE, retryable=False)
        except Exception as error:
            log.error("synthesis failed", error_type=type(error).__name__, voice=str(job.voice), exc_info=error)
            message = "the sentence could not be spoken; try again"
            return await self._fail(delivery, "synthesis_failed", message, retryable=True)

    def hurry(self) -> None:
        """Finish what is under way as soon as can be."""
        self._engine.hurry()

    def forget_voices(self) -> None:
        """Look up every voice again before it is spoken with."""
        self._embeddings.clear()

    async def revoke(self, voice: UUID) -> bool:
        """The voice must not be heard any more: forget it, and end what is being spoken with it.

        True once nothing of it is left here; False when that took longer than END_WITHIN_S.
        """
        metrics.REVOKED.inc()
        self._embeddings.forget(voice)
        revoked = [attempt for attempt in self._attempts if attempt.voice == voice]
        for attempt in revoked:
            attempt.revoked = True
            if attempt.stream is not None:
                self._engine.leave(attempt.stream)
                attempt.stream.put(VoiceUnavailable(str(voice)))
        try:
            async with asyncio.timeout(END_WITHIN_S):
                for attempt in revoked:
                    await attempt.ended.wait()
        except TimeoutError:
            return False
        return True

    async def _attempt(self, delivery: Delivery, attempt: _Attempt, *, claimed: bool) -> str:
        job, taken_at, wall = delivery.job, self._clock(), self._wall_clock()
        metrics.STAGES.labels("queue").observe(max(0.0, wall - delivery.added_at))
        verdict = await self._publisher.ask(job)
        if verdict.stop:
            return await self._drop(delivery, verdict)
        embedding = await self._embeddings.get(job.tenant, job.voice, job.version)
        attempt.check()
        needed_at = taken_at + min(max(job.deadline_ms / 1000 - wall, -LATEST_S), EARLIEST_S)
        request = Request(
            job.context, job.sentence, job.text, embedding, needed_at, claimed, job.mel, job.speed_percent / 100
        )
        with await self._engine.start(request) as stream:
            attempt.stream = stream
            return await self._stream(delivery, attempt, stream, _Progress(taken_at, needed_at))

    async def _stream(self, delivery: Delivery, attempt: _Attempt, stream: Stream, progress: _Progress) -> str:
        while True:
            attempt.check()
            sound = await stream.next()
            # What was computed before the voice fell silent is not published after.
            attempt.check()
            verdict = await self._publish(delivery, sound, progress)
            stream.note_published()
            if sound.chunk.last:
                self._note_end(delivery, stream, progress)
                return "spoken"
            if verdict.stop:
                return await self._drop(delivery, verdict)

    async def _publish(self, delivery: Delivery, sound: Sound, progress: _Progress) -> Verdict:
        job, chunk, began = delivery.job, sound.chunk, self._clock()
        computed_us = int(1e6 * sound.computed_s)
        message = Chunk(
            job.context, job.sentence, progress.number, chunk.last, chunk.pcm, computed_us, chunk.words, chunk.mel
        )
        acknowledge = delivery.entry if chunk.last else None
        verdict = await self._publisher.publish(job, message, acknowledge=acknowledge)
        now = self._clock()
        metrics.CHUNKS.inc()
        metrics.STAGES.labels("publish").observe(now - began)
        metrics.RUN_AHEAD.observe(progress.needed_at + progress.sent_s - now)
        if progress.number == 0:
            metrics.FIRST_CHUNK.observe(now - progress.taken_at)
            # Its listener began to hear it just now.
            progress.needed_at = max(progress.needed_at, now)
        progress.number += 1
        progress.sent_s += len(chunk.pcm) / 2 / SAMPLE_RATE
        return verdict

    def _note_end(self, delivery: Delivery, stream: Stream, progress: _Progress) -> None:
        metrics.REAL_TIME_FACTOR.observe((self._clock() - progress.taken_at) / max(progress.sent_s, 1e-3))
        if stream.cut:
            metrics.CUT.inc()
            log.warning("a sentence did not stop and was cut", voice=str(delivery.job.voice), seconds=progress.sent_s)

    async def _drop(self, delivery: Delivery, verdict: Verdict) -> str:
        """Stop on a job that nobody wants any more; a listener whose voice was silenced is told."""
        if verdict.voice_silenced:
            self._embeddings.forget(delivery.job.voice)
            error = VoiceUnavailable(str(delivery.job.voice))
            return await self._fail(delivery, error.code, str(error), retryable=False)
        await self._jobs.acknowledge([delivery.entry])
        return "cancelled" if verdict.cancelled else "relay_gone"

    async def _fail(self, delivery: Delivery, code: str, message: str, *, retryable: bool) -> str:
        job = delivery.job
        metrics.ERRORS.labels(code).inc()
        failure = Failure(job.context, job.sentence, code, message, retryable)
        try:
            await self._publisher.publish(job, failure, acknowledge=delivery.entry)
        except ServerUnavailable:
            return "interrupted"
        return "failed"
