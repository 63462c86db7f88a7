"""What comes in and goes out with sound: new voices, new versions of them, and everything that is held on one."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from uuid import UUID

import structlog
from fastapi import APIRouter, Request, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from relay.api.bodies import parse_model
from relay.api.idempotency import Done, Once, Outcome
from relay.api.routes import IdempotencyKey, IdInPath, door, with_answer
from relay.api.services import Here, Services
from relay.api.texts import Asked, Name, parse_id
from relay.api.uploads import Recording, read_form
from relay.api.visits import Visit, Visitor
from relay.api.voices import VoiceBody, find_own, show_voice
from relay.entrance.quotas import check_voices
from relay.entrance.rate_limits import Rate
from relay.errors import InvalidRequest, RelayError, RequestRefused, UnknownObject
from storage.cold_jobs import send_enrolment
from storage.errors import StorageError
from storage.evidence.audit import append
from storage.tenancy.api_keys import Scope
from storage.voices.consents import find_consent
from storage.voices.export import VoiceRecord, collect_voice, to_archive
from storage.voices.versions import add_version
from storage.voices.voices import Voice, create_voice

log = structlog.get_logger()

router = APIRouter(prefix="/v1/voices", tags=["voices"])
SEND_TIMEOUT_S = 5.0
ARCHIVE = "application/zip"
_SCOPES = (Scope.ENROL, Scope.ADMIN)


class VersionRequest(Asked):
    """A recording and the consent that it is used by."""

    consent: str
    recording: Recording


class VoiceRequest(VersionRequest):
    """A new voice."""

    name: Name


class _VersionFields(Asked):
    consent: str


class _VoiceFields(_VersionFields):
    name: Name


@router.post(
    "",
    status_code=202,
    response_model=VoiceBody,
    **door(*_SCOPES, form=VoiceRequest, rate=Rate.UPLOAD, refuses=(404, 409, 410)),
)
async def create(request: Request, visit: Visitor, services: Here, idempotency_key: IdempotencyKey = None) -> Response:
    """Make a voice of a recording; it is enrolled in the background, see `GET /v1/voices/{voice}?wait=20`."""
    with services.uploads.take(visit.tenant):
        form = await read_form(request, services.max_recording_bytes)
        asked = parse_model(_VoiceFields, dict(form.fields))
        consent, recording = parse_id("consent", asked.consent), _need(form.recording)

        async def work(connection: AsyncConnection, voice_id: UUID) -> Outcome:
            made = await make_voice(
                connection, services, visit, voice_id, name=asked.name, consent=consent, recording=recording
            )
            return _accepted(made)

        once = Once(services, visit.tenant, request, idempotency_key, form.digest)
        return await _enrol(services, visit, await once.do(work))


@router.post(
    "/{voice}/versions",
    status_code=202,
    response_model=VoiceBody,
    **door(*_SCOPES, form=VersionRequest, rate=Rate.UPLOAD, refuses=(404, 409, 410)),
)
async def replace(
    request: Request, visit: Visitor, services: Here, voice: IdInPath, idempotency_key: IdempotencyKey = None
) -> Response:
    """Give a voice another recording; it speaks as before until that one is enrolled."""
    with services.uploads.take(visit.tenant):
        form = await read_form(request, services.max_recording_bytes)
        asked = parse_model(_VersionFields, dict(form.fields))
        consent, recording = parse_id("consent", asked.consent), _need(form.recording)

        async def work(connection: AsyncConnection, _: UUID) -> Outcome:
            found = await find_own(connection, visit, voice)
            added = await add_version(
                connection, services.keyring, visit.tenant, found.id, consent=consent, upload=recording
            )
            if added is None or added.latest is None:
                raise await _explain(connection, visit, consent)
            act = visit.act("voice.replaced", found.id, consent=str(consent), version=added.latest.number)
            await append(connection, visit.tenant, act)
            return _accepted(added)

        once = Once(services, visit.tenant, request, idempotency_key, form.digest)
        return await _enrol(services, visit, await once.do(work))


@router.get(
    "/{voice}/export",
    response_class=Response,
    **with_answer(door(*_SCOPES, refuses=(404,)), 200, ARCHIVE),
)
async def export(visit: Visitor, services: Here, voice: IdInPath) -> Response:
    """Hand out everything that is held on a voice, as an archive (subject access)."""

    async def work(connection: AsyncConnection) -> VoiceRecord:
        found = await find_own(connection, visit, voice)
        record = await collect_voice(connection, services.keyring, visit.tenant, found.id)
        if record is None:
            raise UnknownObject("voice", voice)
        await append(connection, visit.tenant, visit.act("voice.exported", found.id))
        return record

    record = await services.within(visit.tenant, work)
    content = await asyncio.to_thread(to_archive, record)
    name = f"voice-{parse_id('voice', voice)}.zip"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return Response(content, media_type=ARCHIVE, headers=headers)


async def make_voice(
    connection: AsyncConnection,
    services: Services,
    visit: Visit,
    voice_id: UUID,
    *,
    name: str,
    consent: UUID,
    recording: bytes,
) -> Voice:
    """A pending voice within the quota and by a consent in force, on record; `have_enrolled` comes after the commit.

    Raises Refused, UnknownObject or RequestRefused for the consent, and what `create_voice` raises.
    """
    await check_voices(connection, visit.tenant, visit.caller.limits)
    made = await create_voice(
        connection, services.keyring, visit.tenant, name=name, consent=consent, upload=recording, voice_id=voice_id
    )
    if made is None:
        raise await _explain(connection, visit, consent)
    await append(connection, visit.tenant, visit.act("voice.created", made.id, consent=str(consent)))
    return made


async def have_enrolled(services: Services, tenant: UUID, voice: UUID, version: int) -> None:
    """Have it enrolled. If Celery cannot be asked, its regular look for waiting recordings will find this one."""
    try:
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await asyncio.to_thread(send_enrolment, services.celery, tenant, voice, version)
    except (StorageError, TimeoutError) as error:
        log.warning("an enrolment waits for the next look", voice=str(voice), reason=type(error).__name__)


def _need(recording: bytes | None) -> bytes:
    if recording is None:
        raise InvalidRequest("`recording` must be a file in the form", field="recording")
    return recording


def _accepted(voice: Voice) -> Outcome:
    return Outcome(show_voice(voice), f"/v1/voices/{voice.id}", HTTPStatus.ACCEPTED)


async def _explain(connection: AsyncConnection, visit: Visit, consent: UUID) -> RelayError:
    """Why nothing can be made by this consent: it is not there, or permits nothing (any more)."""
    found = await find_consent(connection, visit.tenant, consent)
    if found is None:
        return UnknownObject("consent", str(consent))
    return RequestRefused(
        409, "consent_inactive", "this consent is withdrawn or has expired; a new one is needed", field="consent"
    )


async def _enrol(services: Services, visit: Visit, done: Done) -> Response:
    enrolment = done.content["enrolment"]
    if done.fresh and enrolment is not None:
        await have_enrolled(services, visit.tenant, UUID(done.content["id"]), enrolment["version"])
    return done.answer()
