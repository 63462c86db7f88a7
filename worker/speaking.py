"""One job, from its delivery to its acknowledgement."""

from __future__ import annotations

import time
from functools import partial

import structlog

from storage.errors import DecryptionError, ServerUnavailable
from storage.jobs import Delivery, JobStream
from storage.results import ResultPublisher, Verdict
from storage.wire import Chunk, Failure
from worker import metrics
from worker.embeddings import EmbeddingCache
from worker.engine import Engine
from worker.errors import NothingToSay, VoiceUnavailable
from worker.sv2tts.mel import SAMPLE_RATE
from worker.sv2tts.speech import Speech, SpeechModel

log = structlog.get_logger()

CHUNK_MS = 80
_UNREADABLE = "the voice cannot be opened by this service; enrol it again"


class Speaking:
    """Speaks jobs; any number at once, each in a task of its own."""

    def __init__(
        self,
        model: SpeechModel,
        engine: Engine,
        embeddings: EmbeddingCache,
        jobs: JobStream,
        publisher: ResultPublisher,
    ) -> None:
        self._model = model
        self._engine = engine
        self._embeddings = embeddings
        self._jobs = jobs
        self._publisher = publisher

    async def speak(self, delivery: Delivery) -> None:
        """Synthesize and publish the job's chunks, and acknowledge it with the last, or with its failure.

        When Redis goes away in the middle the job stays unacknowledged: whoever claims it starts from its first chunk,
        and the relay drops the ones it has.
        """
        job = delivery.job
        started = time.monotonic()
        try:
            outcome = await self._attempt(delivery, started)
        except ServerUnavailable as error:
            if error.server == "Redis":
                outcome = "interrupted"
            else:
                outcome = await self._fail(delivery, error.code, str(error), retryable=True)
        except (NothingToSay, VoiceUnavailable) as error:
            outcome = await self._fail(delivery, error.code, str(error), retryable=False)
        except DecryptionError as error:
            log.error("a voice cannot be opened", voice=str(job.voice), reason=str(error))
            outcome = await self._fail(delivery, VoiceUnavailable.code, _UNREADABLE, retryable=False)
        except Exception as error:
            log.error("synthesis failed", error_type=type(error).__name__, voice=str(job.voice), exc_info=error)
            message = "the sentence could not be spoken; try again"
            outcome = await self._fail(delivery, "synthesis_failed", message, retryable=True)
        metrics.JOBS.labels(outcome).inc()

    def forget_voices(self) -> None:
        """Look up every voice again before it is spoken with."""
        self._embeddings.clear()

    async def _attempt(self, delivery: Delivery, started: float) -> str:
        job = delivery.job
        verdict = await self._publisher.ask(job)
        if verdict.stop:
            return await self._drop(delivery, verdict)
        embedding = await self._embeddings.get(job.tenant, job.voice, job.version)
        speech = await self._engine.run(job.deadline_ms, partial(self._model.start, job.text, embedding))
        return await self._stream(delivery, speech, started)

    async def _stream(self, delivery: Delivery, speech: Speech, started: float) -> str:
        job, number, sent_bytes = delivery.job, 0, 0
        while True:
            chunk = await self._engine.run(job.deadline_ms + CHUNK_MS * number, speech.next_chunk)
            message = Chunk(job.context, job.sentence, number, chunk.last, chunk.pcm)
            acknowledge = delivery.entry if chunk.last else None
            verdict = await self._publisher.publish(job, message, acknowledge=acknowledge)
            metrics.CHUNKS.inc()
            if number == 0:
                metrics.FIRST_CHUNK.observe(time.monotonic() - started)
            number, sent_bytes = number + 1, sent_bytes + len(chunk.pcm)
            if chunk.last:
                seconds = sent_bytes / 2 / SAMPLE_RATE
                metrics.REAL_TIME_FACTOR.observe((time.monotonic() - started) / max(seconds, 1e-3))
                return "spoken"
            if verdict.stop:
                return await self._drop(delivery, verdict)

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
