"""Voices as clients see and change them; recordings come in by `recordings`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field
from sqlalchemy.ext.asyncio import AsyncConnection

from relay.api.answers import check_current, show, tell
from relay.api.bodies import read_json
from relay.api.cursors import read_place, write_place
from relay.api.deletions import DeletionBody, begin_deletion, carry_out, show_deletion, tell_deletion
from relay.api.routes import Cursor, IdInPath, IfMatch, IfNoneMatch, Limit, door, or_accepted
from relay.api.services import Here, Services
from relay.api.texts import Asked, Name, parse_id
from relay.api.visits import Visit, Visitor
from relay.errors import UnknownObject
from storage.evidence.audit import append
from storage.evidence.beginnings import ObjectKind
from storage.evidence.deletions import Deletion
from storage.paging import Page
from storage.states import VersionState, VoiceState
from storage.streams.broadcasts import silence_voice, unsilence_voice
from storage.tenancy.api_keys import Deed, Scope
from storage.voices.voices import Version, Voice, disable_voice, enable_voice, find_voice, list_voices, rename_voice

router = APIRouter(prefix="/v1/voices", tags=["voices"])
MAX_WAIT_S = 30
_FIRST_POLL_S = 0.05
_LAST_POLL_S = 0.5
_READERS = (Scope.SPEAK, Scope.ENROL, Scope.ADMIN)
_WRITERS = (Scope.ENROL, Scope.ADMIN)


class EnrolmentError(BaseModel):
    """Why a recording did not become a voice."""

    code: str
    message: str


class Enrolment(BaseModel):
    """The newest recording of a voice, and how far it is."""

    version: int
    state: VersionState
    stage: str = Field(description="`waiting`, what is being done, then `ended`.")
    quality: int | None = Field(description="0 to 100.")
    quality_parts: dict[str, Any] | None
    duration_s: float | None = Field(description="Of the speech that was kept.")
    error: EnrolmentError | None
    created_at: datetime
    finished_at: datetime | None


class VoiceBody(BaseModel):
    """A voice, without anything that was recorded."""

    id: UUID
    name: str
    state: VoiceState
    version: int = Field(description="The version that speaks; 0 while there is none.")
    consent: UUID
    aliases: list[str]
    enrolment: Enrolment | None
    created_at: datetime
    updated_at: datetime
    last_used_at: datetime


class VoiceList(BaseModel):
    """Voices, newest first."""

    voices: list[VoiceBody]
    next_cursor: str | None


class VoiceChange(Asked):
    """What of a voice can be changed as such."""

    name: Name


class VoiceDeletion(BaseModel):
    """The deletion of a voice."""

    deletion: DeletionBody


@router.get("", response_model=VoiceList, **door(*_READERS, refuses=(304,)))
async def list_all(
    request: Request,
    visit: Visitor,
    services: Here,
    limit: Limit = 20,
    cursor: Cursor = "",
    state: Annotated[VoiceState | None, Query(description="Only voices in this state.")] = None,
    name: Annotated[Name | None, Query(description="Only voices of exactly this name.")] = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """List the voices, newest first."""
    kind = f"voices {state} {name}"
    page = Page(limit, read_place(kind, cursor))
    found = await services.within(
        visit.tenant,
        lambda connection: list_voices(connection, visit.tenant, page, state=state, name=name or ""),
    )
    shown = [show_voice(voice) for voice in found.items]
    return show(request, VoiceList(voices=shown, next_cursor=write_place(kind, found.after)))


@router.get("/{voice}", response_model=VoiceBody, **door(*_READERS, refuses=(304, 404)))
async def read_voice(
    request: Request,
    visit: Visitor,
    services: Here,
    voice: IdInPath,
    wait: Annotated[
        float, Query(ge=0, le=MAX_WAIT_S, description="How many seconds to wait while a recording is being enrolled.")
    ] = 0,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Show a voice and how far its newest recording is."""
    return show(request, show_voice(await await_enrolment(services, visit, voice, wait, request.is_disconnected)))


@router.patch("/{voice}", response_model=VoiceBody, **door(*_WRITERS, body=VoiceChange, refuses=(404, 409, 412)))
async def change_voice(
    request: Request, visit: Visitor, services: Here, voice: IdInPath, if_match: IfMatch = None
) -> Response:
    """Give a voice another name."""
    asked = await read_json(request, VoiceChange)

    async def work(connection: AsyncConnection) -> Voice:
        found = await find_own(connection, visit, voice)
        check_current(request, show_voice(found))
        revision = None if if_match is None else found.revision
        return await change_name(connection, visit, found.id, asked.name, revision=revision)

    return tell(show_voice(await services.within(visit.tenant, work)), tagged=True)


@router.post("/{voice}/disable", response_model=VoiceBody, **door(*_WRITERS, refuses=(404, 409)))
async def disable(visit: Visitor, services: Here, voice: IdInPath) -> Response:
    """Stop a ready voice from speaking, at once and until it is enabled."""

    async def work(connection: AsyncConnection) -> Voice:
        found = await find_own(connection, visit, voice)
        disabled = await disable_voice(connection, visit.tenant, found.id)
        await append(connection, visit.tenant, visit.act("voice.disabled", found.id))
        # Before this is done for good: whoever is told that it is, hears the voice no more.
        await silence_voice(services.redis, found.id)
        return disabled

    return tell(show_voice(await services.within(visit.tenant, work)), tagged=True)


@router.post("/{voice}/enable", response_model=VoiceBody, **door(*_WRITERS, refuses=(404, 409)))
async def enable(visit: Visitor, services: Here, voice: IdInPath) -> Response:
    """Let a disabled voice speak again."""

    async def work(connection: AsyncConnection) -> Voice:
        found = await find_own(connection, visit, voice)
        enabled = await enable_voice(connection, visit.tenant, found.id)
        await append(connection, visit.tenant, visit.act("voice.enabled", found.id))
        # The row is locked until the end: a deletion that comes meanwhile puts up its own tombstone after this.
        await unsilence_voice(services.redis, found.id)
        return enabled

    return tell(show_voice(await services.within(visit.tenant, work)), tagged=True)


@router.delete("/{voice}", **or_accepted(VoiceDeletion, door(*_WRITERS, refuses=(404, 412), deed=Deed.END)))
async def delete_voice(
    request: Request, visit: Visitor, services: Here, voice: IdInPath, if_match: IfMatch = None
) -> Response:
    """Delete a voice for good: it falls silent at once; its key goes first, then everything that the key opened.

    200 with the receipt when all is done, 202 and where to look while some of it is still to do. Once more gives the
    same deletion.
    """
    voice_id = parse_id("voice", voice)

    async def work(connection: AsyncConnection) -> Deletion | None:
        if if_match is not None:
            check_current(request, show_voice(await find_own(connection, visit, voice)))
        return await begin_deletion(connection, visit, ObjectKind.VOICE, voice_id)

    begun = await services.within(visit.tenant, work)
    if begun is None:
        raise UnknownObject("voice", voice)
    deletions = await carry_out(services, visit.tenant, [begun])
    return tell_deletion(VoiceDeletion(deletion=show_deletion(deletions[0])), deletions)


async def await_enrolment(
    services: Services, visit: Visit, voice: str, wait_s: float, is_gone: Callable[[], Awaitable[bool]]
) -> Voice:
    """The visitor's voice, as soon as its newest recording is enrolled or refused, or as it is after `wait_s` or when
    nobody waits any more; raises UnknownObject."""
    deadline = asyncio.get_running_loop().time() + wait_s
    poll_s = _FIRST_POLL_S
    while True:
        found = await services.within(visit.tenant, lambda connection: find_own(connection, visit, voice))
        left = deadline - asyncio.get_running_loop().time()
        if not _is_enrolling(found) or left <= 0 or await is_gone():
            return found
        await asyncio.sleep(min(poll_s, left))
        poll_s = min(poll_s * 1.5, _LAST_POLL_S)


async def change_name(
    connection: AsyncConnection, visit: Visit, voice_id: UUID, name: str, *, revision: int | None = None
) -> Voice:
    """Give a voice another name, on record; raises what `rename_voice` raises."""
    renamed = await rename_voice(connection, visit.tenant, voice_id, name, revision=revision)
    await append(connection, visit.tenant, visit.act("voice.renamed", voice_id))
    return renamed


def show_voice(voice: Voice) -> VoiceBody:
    """A voice as clients see it."""
    return VoiceBody(
        id=voice.id,
        name=voice.name,
        state=voice.state,
        version=voice.version,
        consent=voice.consent_id,
        aliases=list(voice.aliases),
        enrolment=None if voice.latest is None else _show_enrolment(voice.latest),
        created_at=voice.created_at,
        updated_at=voice.updated_at,
        last_used_at=voice.last_used_at,
    )


async def find_own(connection: AsyncConnection, visit: Visit, voice: str) -> Voice:
    """The visitor's voice with this id; raises UnknownObject."""
    found = await find_voice(connection, visit.tenant, parse_id("voice", voice))
    if found is None:
        raise UnknownObject("voice", voice)
    return found


def _is_enrolling(voice: Voice) -> bool:
    return voice.latest is not None and voice.latest.state is VersionState.PENDING


def _show_enrolment(version: Version) -> Enrolment:
    error = None
    if version.error_code is not None:
        error = EnrolmentError(code=version.error_code, message=version.error_message or "")
    return Enrolment(
        version=version.number,
        state=version.state,
        stage=version.stage,
        quality=version.quality,
        quality_parts=version.quality_parts,
        duration_s=version.duration_s,
        error=error,
        created_at=version.created_at,
        finished_at=version.finished_at,
    )
