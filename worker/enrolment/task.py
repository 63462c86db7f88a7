"""Enrolment: a pending voice's upload becomes a trimmed recording and an embedding, or the reason why not."""

from __future__ import annotations

import asyncio
from functools import cached_property
from uuid import UUID

import structlog
from celery import Celery

from storage.cold_jobs import ENROL
from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.errors import DecryptionError, IllegalTransition, RootKeyError, ServerUnavailable
from storage.settings import Settings
from storage.voices.versions import Enrolled, complete_enrolment, fail_enrolment, load_upload
from worker.enrolment.recording import read_recording, to_flac
from worker.errors import BundleError, RecordingError
from worker.sv2tts.bundle import Bundle
from worker.sv2tts.encoder import SpeakerEncoder

log = structlog.get_logger()

MAX_RETRIES = 1000
LONGEST_BACKOFF_S = 60
NOT_ITS_FAULT = (ServerUnavailable, BundleError, DecryptionError, RootKeyError)
"""What an operator has to mend: the recording is kept, and the enrolment tried again, for the better part of a day."""
_INTERNAL = RecordingError("enrolment_failed", "the recording could not be processed; enrol it again")


class Enrolment:
    """What enrolling needs, made once a process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @cached_property
    def _encoder(self) -> SpeakerEncoder:
        return SpeakerEncoder(Bundle.load(self._settings.bundle))

    @cached_property
    def _keyring(self) -> Keyring:
        return Keyring.from_settings(self._settings)

    async def enrol(self, tenant: UUID, voice: UUID, version: int) -> str:
        """Enrol one version; returns how it ended. Doing it twice does no harm.

        Raises one of NOT_ITS_FAULT, such as ServerUnavailable when Postgres is away: the voice is pending still.
        """
        database = Database.for_service(self._settings, pool_size=1)
        try:
            await self._complete(database, tenant, voice, version)
        except IllegalTransition:
            return "gone"
        except RecordingError as error:
            return await _fail(database, tenant, voice, version, error)
        except NOT_ITS_FAULT:
            raise
        except Exception as error:
            log.error("enrolment failed", voice=str(voice), exc_info=error)
            return await _fail(database, tenant, voice, version, _INTERNAL)
        finally:
            await database.close()
        return "ready"

    async def _complete(self, database: Database, tenant: UUID, voice: UUID, version: int) -> None:
        async with database.transaction(tenant=tenant) as connection:
            upload = await load_upload(connection, self._keyring, tenant, voice, version)
        if upload is None:
            raise IllegalTransition("voice", "gone", "ready")
        recording = read_recording(upload, max_bytes=self._settings.max_recording_bytes)
        embedding = self._encoder.embed(recording.samples)
        content = Enrolled(
            to_flac(recording.samples), embedding.astype("<f4").tobytes(), recording.duration_s, None, None
        )
        async with database.transaction(tenant=tenant) as connection:
            await complete_enrolment(connection, self._keyring, tenant, voice, version, content)


async def _fail(database: Database, tenant: UUID, voice: UUID, version: int, error: RecordingError) -> str:
    """Note the reason, unless the voice was deleted while its recording was examined."""
    try:
        async with database.transaction(tenant=tenant) as connection:
            await fail_enrolment(connection, tenant, voice, version, code=error.code, message=error.message)
    except IllegalTransition:
        return "gone"
    return error.code


def register(app: Celery, settings: Settings) -> None:
    """Make enrolment known to a Celery application under its name."""
    enrolment = Enrolment(settings)

    def enrol(tenant: str, voice: str, version: int) -> None:
        outcome = asyncio.run(enrolment.enrol(UUID(tenant), UUID(voice), version))
        log.info("enrolment", voice=voice, version=version, outcome=outcome)

    app.task(
        enrol,
        name=ENROL,
        autoretry_for=NOT_ITS_FAULT,
        max_retries=MAX_RETRIES,
        retry_backoff=True,
        retry_backoff_max=LONGEST_BACKOFF_S,
    )
