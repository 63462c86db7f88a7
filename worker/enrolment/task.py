"""Enrolment: a version's upload becomes a trimmed recording and an embedding, or the reason why not.

Whoever enrols a version claims it first, for longer than a task can last, so that a message delivered twice is worked
on once. Every step may be killed: what counts is one transaction at the end, and the upload stays until then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import Any
from uuid import UUID

import structlog
from celery import Celery, Task
from celery.exceptions import SoftTimeLimitExceeded
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.cold_jobs import ENROL, lease_s
from storage.encryption.keyring import Keyring
from storage.encryption.providers import KeyProvider
from storage.encryption.providers.choice import open_provider
from storage.errors import DecryptionError, IllegalTransition, RootKeyError, ServerUnavailable
from storage.evidence.audit import Act, append
from storage.settings import Settings
from storage.streams.tries import count_try, discount_try
from storage.voices.consents import load_consent_recording
from storage.voices.enrolments import Waiting, find_waiting, release_enrolment
from storage.voices.records import lock_consent
from storage.voices.versions import (
    Enrolled,
    claim_enrolment,
    complete_enrolment,
    fail_enrolment,
    load_upload,
    report_stage,
)
from worker.enrolment.consent_match import check_speaker
from worker.enrolment.recording import Recording, read_recording, to_flac
from worker.enrolment.speakers import check_unity, measure_unity
from worker.enrolment.stages import Stage
from worker.errors import BundleError, EnrolmentTaken, RecordingError
from worker.sv2tts.bundle import Bundle
from worker.sv2tts.encoder import SpeakerEncoder
from worker.sv2tts.mel import Floats
from worker.transactions import Transactions

log = structlog.get_logger()

MOST_TRIES = 3
"""How often a version is begun whose process is killed or does not come to an end."""

LONGEST_WAIT = timedelta(days=1)
"""How long an operator has to mend what keeps recordings from being enrolled."""

MAX_RETRIES = 20
"""How often a message comes back by itself; upkeep sends another one afterwards."""

NOT_ITS_FAULT = (ServerUnavailable, BundleError, DecryptionError, RootKeyError)
"""What an operator has to mend: the recording is kept, and the enrolment tried again."""

ACTOR = "system:enrolment"
ORIGIN = "celery"

_INTERNAL = RecordingError("enrolment_failed", "the recording could not be processed; enrol it again")
_TOO_LONG = RecordingError(
    "enrolment_timeout", "the recording could not be processed in time; enrol it again, or 5 to 10 s of it"
)


@dataclass(frozen=True, slots=True)
class Target:
    """The version to enrol."""

    tenant: UUID
    voice: UUID
    version: int

    @property
    def names(self) -> tuple[UUID, UUID, int]:
        return self.tenant, self.voice, self.version


class Enrolment:
    """What enrolling needs; made once a process, and its models only when there is something to enrol."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @cached_property
    def _encoder(self) -> SpeakerEncoder:
        return SpeakerEncoder(Bundle.load(self._settings.bundle))

    @cached_property
    def _provider(self) -> KeyProvider:
        return open_provider(self._settings)

    def enrol(self, target: Target) -> str:
        """Enrol a version; returns how it ended: `ready`, `gone` or the code of a RecordingError.

        Raises EnrolmentTaken, one of NOT_ITS_FAULT, or SoftTimeLimitExceeded: the version waits still.
        """
        with Transactions(self._settings, target.tenant) as store:
            waiting = store.run(partial(_claim, target, lease_s(self._settings)))
            if waiting is None:
                return "gone"
            try:
                return self._end(store, target, waiting)
            except (SoftTimeLimitExceeded, *NOT_ITS_FAULT) as error:
                self._release(target, waiting, counts=isinstance(error, SoftTimeLimitExceeded))
                raise

    def _end(self, store: Transactions, target: Target, waiting: Waiting) -> str:
        """Take a claimed version to its end."""
        tries = store.ask(lambda redis: count_try(redis, target.voice, target.version))
        try:
            if tries > MOST_TRIES or datetime.now(UTC) - waiting.created_at > LONGEST_WAIT:
                raise _TOO_LONG
            self._complete(store, target, waiting)
        except IllegalTransition:
            return "gone"
        except RecordingError as error:
            return _reject(store, target, error)
        except (*NOT_ITS_FAULT, SoftTimeLimitExceeded):
            raise
        except Exception as error:
            log.error("enrolment failed", voice=str(target.voice), exc_info=error)
            return _reject(store, target, _INTERNAL)
        return "ready"

    def _complete(self, store: Transactions, target: Target, waiting: Waiting) -> None:
        keyring = Keyring(self._provider)
        upload = store.run(lambda connection: load_upload(connection, keyring, *target.names))
        if upload is None:
            raise IllegalTransition("voice", "gone", "ready")
        spoken = store.run(lambda c: load_consent_recording(c, keyring, target.tenant, waiting.consent_id))

        def report(stage: Stage) -> None:
            store.run(lambda connection: report_stage(connection, *target.names, stage))

        recording = read_recording(upload, max_bytes=self._settings.max_recording_bytes, report=report)
        report(Stage.EMBEDDING)
        embedding, unity = self._embed(recording)
        if spoken is not None:
            check_speaker(self._embed_consent(spoken), embedding)
        report(Stage.STORING)
        content = _make(recording, embedding, unity)
        store.run(partial(_keep, keyring, target, waiting.consent_id, content))

    def _embed(self, recording: Recording) -> tuple[Floats, float]:
        unity = measure_unity(self._encoder, recording.voice)
        check_unity(unity)
        return self._encoder.embed(recording.samples), unity

    def _embed_consent(self, spoken: bytes) -> Floats:
        try:
            recording = read_recording(spoken, max_bytes=self._settings.max_recording_bytes)
        except RecordingError as error:
            raise RecordingError(
                "consent_recording_unusable", f"the spoken consent cannot be compared with the sample: {error.message}"
            ) from error
        return self._encoder.embed(recording.samples)

    def _release(self, target: Target, waiting: Waiting, *, counts: bool) -> None:
        """Let whoever comes next begin at once, as far as the servers can be told; else the claim ends by itself."""
        # On connections of its own: the others may have been interrupted in mid-sentence.
        with Transactions(self._settings, target.tenant) as store:
            if not counts:
                _try(target, lambda: store.ask(lambda redis: discount_try(redis, target.voice, target.version)))
            until = waiting.claimed_until
            _try(target, lambda: store.run(lambda connection: release_enrolment(connection, *target.names, until)))


def _try(target: Target, step: Callable[[], None]) -> None:
    try:
        step()
    except ServerUnavailable as error:
        log.warning("an enrolment is not quite put off", voice=str(target.voice), reason=str(error))


async def _claim(target: Target, seconds: float, connection: AsyncConnection) -> Waiting | None:
    """The version, for oneself; None when it waits no more. Raises EnrolmentTaken."""
    claimed = await claim_enrolment(connection, *target.names, seconds)
    waiting = await find_waiting(connection, *target.names)
    if waiting is not None and not claimed:
        until = waiting.claimed_until or datetime.now(UTC)
        raise EnrolmentTaken(target.voice, target.version, (until - datetime.now(UTC)).total_seconds())
    return waiting


async def _keep(
    keyring: Keyring, target: Target, consent_id: UUID, content: Enrolled, connection: AsyncConnection
) -> None:
    # Consents before voices, as everywhere.
    if not await lock_consent(connection, target.tenant, consent_id):
        raise RecordingError("consent_ended", "the consent of this recording ended before it was enrolled")
    await complete_enrolment(connection, keyring, *target.names, content)
    detail = {"version": target.version, "quality": content.quality, "duration_s": content.duration_s}
    await _put_on_record(connection, target, "voice.enrolled", detail)


def _make(recording: Recording, embedding: Floats, unity: float) -> Enrolled:
    quality = recording.quality
    return Enrolled(
        recording=to_flac(recording.samples),
        embedding=embedding.astype("<f4").tobytes(),
        duration_s=recording.duration_s,
        quality=round(quality.score),
        quality_parts={name: round(value, 3) for name, value in {**asdict(quality), "unity": unity}.items()},
    )


def _reject(store: Transactions, target: Target, error: RecordingError) -> str:
    """Note the reason, unless the voice went away while its recording was examined."""

    async def work(connection: AsyncConnection) -> None:
        await fail_enrolment(connection, *target.names, code=error.code, message=error.message)
        await _put_on_record(connection, target, "voice.rejected", {"version": target.version, "code": error.code})

    try:
        store.run(work)
    except IllegalTransition:
        return "gone"
    return error.code


async def _put_on_record(connection: AsyncConnection, target: Target, action: str, detail: dict[str, Any]) -> None:
    await append(connection, target.tenant, Act(ACTOR, action, "voice", str(target.voice), ORIGIN, detail))


def register(app: Celery, settings: Settings) -> None:
    """Make enrolment known to a Celery application under its name."""
    app.task(make_task(Enrolment(settings), settings), bind=True, name=ENROL, max_retries=MAX_RETRIES)


def make_task(enrolment: Enrolment, settings: Settings) -> Callable[..., None]:
    """The task's body: it comes back by itself for what may be better a moment later."""

    def enrol(task: Task, tenant: str, voice: str, version: int) -> None:
        began = time.monotonic()
        try:
            outcome = enrolment.enrol(Target(UUID(tenant), UUID(voice), version))
        except (EnrolmentTaken, SoftTimeLimitExceeded, *NOT_ITS_FAULT) as error:
            countdown = choose_countdown(error, task.request.retries, settings.task_limit_s)
            log.warning("enrolment put off", voice=voice, version=version, reason=str(error), countdown_s=countdown)
            raise task.retry(exc=error, countdown=countdown) from error
        log.info("enrolment", voice=voice, version=version, outcome=outcome, seconds=round(time.monotonic() - began, 3))

    return enrol


def choose_countdown(error: Exception, retries: int, limit_s: float) -> float:
    """Seconds until the next try: doubling, or when another's claim ends; never so many that the message, which waits
    unacknowledged, is taken for a dead worker's."""
    wanted = error.wait_s + 0.1 if isinstance(error, EnrolmentTaken) else 2.0 ** min(retries, 10)
    return float(min(max(wanted, 0.1), limit_s / 2))
