"""Voices as every dialect offers them: listed, found by id or alias, made of a recording, renamed, deleted.

All of it is what our own API does, with its quotas, its rates and its lines in the audit log; a dialect only spells the
answers. A voice needs a consent here, whatever it needs where the dialect comes from.
"""

from __future__ import annotations

import unicodedata
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid4

from pydantic import TypeAdapter, ValidationError
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.requests import Request

from relay.api.deletions import begin_deletion, carry_out
from relay.api.recordings import have_enrolled, make_voice
from relay.api.services import Services
from relay.api.texts import Name, is_alias, parse_id
from relay.api.uploads import Form, read_form
from relay.api.visits import Visit
from relay.api.voices import await_enrolment, change_name
from relay.entrance.rate_limits import Rate
from relay.errors import InvalidRequest, RequestRefused, UnknownVoice
from storage import names
from storage.errors import IllegalTransition, InvalidValue
from storage.evidence.beginnings import ObjectKind
from storage.evidence.deletions import Deletion
from storage.paging import Page, Position, Slice
from storage.states import VersionState, VoiceState
from storage.tenancy.api_keys import Scope
from storage.voices.voices import Voice, find_speaker, find_voice, list_voices

CONSENT_HEADER = "X-Timbrelay-Consent"
READERS = frozenset({Scope.SPEAK, Scope.ENROL, Scope.ADMIN})
"""Whose keys see voices; those of WRITERS make, rename and delete them."""
WRITERS = frozenset({Scope.ENROL, Scope.ADMIN})
ENROLMENT_S = 20.0
"""How long a request waits for the voice that it makes; an enrolment takes about half a second."""
_NAME = TypeAdapter(Name)


@dataclass(frozen=True, slots=True)
class Offered:
    """A voice, as far as a dialect shows it."""

    id: UUID
    name: str
    state: VoiceState
    created_at: datetime
    aliases: tuple[str, ...]


async def list_offered(
    services: Services, tenant: UUID, *, limit: int, after: Position | None = None, search: str = ""
) -> Slice[Offered]:
    """The tenant's voices that are ready, newest first; those with `search` in their names, if it is not empty.

    `limit` is 1 to 1000; what can be in no name is in none.
    """
    part = unicodedata.normalize("NFC", search)
    try:
        found = await services.within(
            tenant,
            lambda connection: list_voices(connection, tenant, Page(limit, after), state=VoiceState.READY, part=part),
        )
    except InvalidValue:
        return Slice((), None)
    return Slice(tuple(offer(voice) for voice in found.items), found.after)


async def find_offered(services: Services, tenant: UUID, name: str) -> Offered:
    """The voice with this id, which may be pending, failed or disabled, or with this alias, which is ready.

    Raises UnknownVoice, for one that is being deleted as well.
    """

    async def work(connection: AsyncConnection) -> Voice | None:
        voice_id = names.parse_id(name)
        if voice_id is None:
            speaker = await find_speaker(connection, tenant, name) if is_alias(name) else None
            voice_id = None if speaker is None else speaker.voice
        return None if voice_id is None else await find_voice(connection, tenant, voice_id)

    found = await services.within(tenant, work)
    if found is None or found.state is VoiceState.DELETING:
        raise UnknownVoice(name)
    return offer(found)


async def find_place(services: Services, tenant: UUID, last: str) -> Position | None:
    """Where a list goes on behind the last voice that a client has; the beginning, if it names none."""
    if not last:
        return None
    voice = await find_offered(services, tenant, last)
    return voice.created_at, voice.id


@asynccontextmanager
async def take_form(services: Services, visit: Visit, request: Request, file: str) -> AsyncIterator[Form]:
    """A form with at most one file, in the field called `file`, counted as an upload; within this it has its room.

    Make of the recording what is to be made before this ends. Raises Refused for too many uploads a minute or at once,
    InvalidRequest, RecordingTooLarge, or RequestRefused for another format or a body that does not arrive.
    """
    await services.limiter.check(visit.caller, Rate.UPLOAD)
    with services.uploads.take(visit.tenant):
        yield await read_form(request, services.max_recording_bytes, file)


def read_consent(request: Request, given: str | None, way: str) -> str:
    """The consent that a request names, in the dialect's own way or in our header; raises InvalidRequest.

    `way` is how the dialect spells it, for whoever has sent none.
    """
    consent = (given or request.headers.get(CONSENT_HEADER, "")).strip()
    if not consent:
        message = (
            "a voice needs the recorded consent of its speaker: keep one with POST /v1/consents of this service, then "
            f"send its id as {way} or in the header `{CONSENT_HEADER}`"
        )
        raise InvalidRequest(message, field="consent")
    return consent


async def make_offered(
    services: Services,
    visit: Visit,
    *,
    name: str,
    consent: str,
    recording: bytes,
    wait_s: float = ENROLMENT_S,
    file: str = "recording",
) -> Offered:
    """Enrol a voice and wait until it is ready; still pending after `wait_s` is no failure, it goes on by itself.

    Raises RequestRefused (422) with the enrolment's own code when the recording does not do, and then nothing is left
    of it; InvalidRequest for the name, UnknownObject or RequestRefused for the consent, Refused for the quota. `visit`
    has to have the scope `enrol` or `admin`, and the recording its room (`take_form`); `file` is what the dialect calls
    it.
    """
    called, by = _check_name(name), parse_id("consent", consent)
    made = await services.within(
        visit.tenant,
        lambda connection: make_voice(
            connection, services, visit, uuid4(), name=called, consent=by, recording=recording
        ),
    )
    await have_enrolled(services, visit.tenant, made.id, 1)
    # The voice is made whether or not somebody waits to hear of it, so nobody is asked.
    found = await await_enrolment(services, visit, str(made.id), wait_s, _stay)
    if found.latest is not None and found.latest.state is VersionState.FAILED:
        # The client is told that it has no voice, so it must have none that counts.
        await _delete(services, visit, found.id)
        code, message = found.latest.error_code or "enrolment_failed", found.latest.error_message
        raise RequestRefused(422, code, message or "the recording cannot be used", field=file)
    return offer(found)


async def rename_offered(services: Services, visit: Visit, voice: UUID, name: str) -> Offered:
    """Give a voice another name; raises InvalidRequest or UnknownVoice."""
    called = _check_name(name)
    try:
        renamed = await services.within(visit.tenant, lambda connection: change_name(connection, visit, voice, called))
    except IllegalTransition as error:
        raise UnknownVoice(str(voice)) from error
    return offer(renamed)


async def delete_offered(services: Services, visit: Visit, voice: UUID) -> None:
    """Delete a voice for good: it is silent when this returns, and what is still to do is done by Celery.

    Once more does no harm. Raises UnknownVoice.
    """
    if await _delete(services, visit, voice) is None:
        raise UnknownVoice(str(voice))


def offer(voice: Voice) -> Offered:
    """A voice as dialects see it."""
    return Offered(voice.id, voice.name, voice.state, voice.created_at, voice.aliases)


async def _delete(services: Services, visit: Visit, voice: UUID) -> Deletion | None:
    begun = await services.within(
        visit.tenant, lambda connection: begin_deletion(connection, visit, ObjectKind.VOICE, voice)
    )
    return None if begun is None else (await carry_out(services, visit.tenant, [begun]))[0]


def _check_name(name: str) -> str:
    try:
        return _NAME.validate_python(name)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise InvalidRequest(f"`name`: {problem['msg'].lower()}", field="name") from error


async def _stay() -> bool:
    return False
