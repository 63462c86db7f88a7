"""One job, from its delivery to its acknowledgement."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
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
_UNREADABLE = "the voice cannot be opened by this service; enrol it again"


@dataclass(slots=True)
class _Progress:
    """How far a job is."""

    taken_at: float
    needed_at: float
    number: int = 0
    sent_s: float = 0.0


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
        self._streams: dict[Stream, UUID] = {}

    async def speak(self, delivery: Delivery, *, claimed: bool = False) -> None:
        """Synthesize and publish the job's chunks, and acknowledge it with the last, or with its failure.

        When Redis goes away in the middle the job stays unacknowledged: whoever claims it starts from its first chunk,
        and the relay drops the ones it has.
        """
        job = delivery.job
        try:
            outcome = await self._attempt(delivery, claimed=claimed)
        except ServerUnavailable as error:
            if error.server == "Redis":
                outcome = "interrupted"
            else:
                outcome = await self._fail(delivery, error.code, str(error), retryable=True)
        except (NothingToSay, VoiceUnavailable) as error:
            outcome = await self._fail(delivery, error.code, str(error), retryable=False)
        except NonFinite as error:
            metrics.NON_FINITE.labels(error.stage).inc()
            log.error("a model gave what is no number", stage=error.stage, voice=str(job.voice))
            outcome = await self._fail(delivery, error.code, str(error), retryable=error.retryable)
        except DecryptionError as error:
            log.error("a voice cannot be opened", voice=str(job.voice), reason=str(error))
            outcome = await self._fail(delivery, VoiceUnavailable.code, _UNREADABLE, retryable=False)
        except Exception as error:
            log.error("synthesis failed", error_type=type(error).__name__, voice=str(job.voice), exc_info=error)
            message = "the sentence could not be spoken; try again"
            outcome = await self._fail(delivery, "synthesis_failed", message, retryable=True)
        metrics.JOBS.labels(outcome).inc()

    def hurry(self) -> None:
        """Finish what is under way as soon as can be."""
        self._engine.hurry()

    def forget_voices(self) -> None:
        """Look up every voice again before it is spoken with."""
        self._embeddings.clear()

    def revoke(self, voice: UUID) -> None:
        """The voice was deleted: forget it, and end what is being spoken with it."""
        metrics.REVOKED.inc()
        self._embeddings.forget(voice)
        for stream, used in list(self._streams.items()):
            if used == voice:
                self._engine.leave(stream)
                stream.put(VoiceUnavailable(str(voice)))

    async def _attempt(self, delivery: Delivery, *, claimed: bool) -> str:
        job, taken_at, wall = delivery.job, self._clock(), self._wall_clock()
        metrics.STAGES.labels("queue").observe(max(0.0, wall - delivery.added_at))
        verdict = await self._publisher.ask(job)
        if verdict.stop:
            return await self._drop(delivery, verdict)
        embedding = await self._embeddings.get(job.tenant, job.voice, job.version)
        needed_at = taken_at + min(max(job.deadline_ms / 1000 - wall, -LATEST_S), EARLIEST_S)
        request = Request(job.context, job.sentence, job.text, embedding, needed_at, claimed)
        with await self._engine.start(request) as stream:
            self._streams[stream] = job.voice
            try:
                return await self._stream(delivery, stream, _Progress(taken_at, needed_at))
            finally:
                del self._streams[stream]

    async def _stream(self, delivery: Delivery, stream: Stream, progress: _Progress) -> str:
        while True:
            sound = await stream.next()
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
        message = Chunk(job.context, job.sentence, progress.number, chunk.last, chunk.pcm, computed_us)
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
        """Stop on a job that nobody wants any more; a listener whose voice was deleted is told."""
        if verdict.voice_deleted:
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
