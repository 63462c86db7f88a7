"""Consents: what a person has agreed to. Without one there is no voice, and when it is withdrawn there is none left."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field
from sqlalchemy.ext.asyncio import AsyncConnection

from relay.api.answers import show
from relay.api.bodies import parse_model, read_json
from relay.api.cursors import read_place, write_place
from relay.api.deletions import DeletionBody, carry_out, show_deletion, tell_deletion
from relay.api.idempotency import Once, Outcome, digest_of
from relay.api.routes import Cursor, IdempotencyKey, IdInPath, IfNoneMatch, Limit, door, or_accepted
from relay.api.services import Here, Services
from relay.api.texts import Ahead, Asked, Language, Lines, Name, StatementVersion, parse_id
from relay.api.uploads import Recording, is_form, read_form
from relay.api.visits import Visit, Visitor
from relay.entrance.quotas import check_consents
from relay.entrance.rate_limits import Rate
from relay.errors import UnknownObject
from storage.errors import IllegalTransition, ServerUnavailable
from storage.evidence.audit import append, append_all
from storage.evidence.beginnings import reject
from storage.evidence.deletions import Deletion, ObjectKind, Reason, request_deletions
from storage.evidence.deletions import Request as Wish
from storage.paging import Page
from storage.states import ConsentState
from storage.streams.broadcasts import silence_voices
from storage.tenancy.api_keys import Deed, Scope
from storage.voices.consents import (
    Consent,
    Statement,
    Terms,
    end_consent,
    find_consent,
    grant_consent,
    list_consents,
    load_statement,
)

router = APIRouter(prefix="/v1/consents", tags=["consents"])
_SCOPES = (Scope.ENROL, Scope.ADMIN)
_LIST = "consents"
AT_ONCE = 100
"""How many voices' deletions a withdrawal begins itself: a request has to end, and so has its line in the audit log."""


class ConsentRequest(Asked):
    """A person's permission, as a client states it."""

    signer: Annotated[Name, Field(description="Who agrees, by name.")]
    statement: Annotated[Lines, Field(description="What they agree to, in the words that they were shown.")]
    statement_version: Annotated[StatementVersion, Field(description="Which version of those words it is.")]
    language: Annotated[Language, Field(description="The language of the statement (BCP 47).")]
    purpose: Annotated[Name, Field(description="What the voice may be used for.")]
    expires_at: Annotated[Ahead | None, Field(description="When the permission ends by itself.")] = None


class SpokenConsentRequest(ConsentRequest):
    """The same with the recording in which it is said aloud; its speaker must be the voice's."""

    recording: Recording


class ConsentBody(BaseModel):
    """A consent, without the person."""

    id: UUID
    state: ConsentState
    statement_version: str
    language: str
    purpose: str
    granted_at: datetime
    expires_at: datetime | None
    withdrawn_at: datetime | None
    has_recording: bool


class ConsentDetail(ConsentBody):
    """A consent with who gave it, and in which words; null once it is being deleted."""

    signer: str | None
    statement: str | None


class ConsentList(BaseModel):
    """Consents, newest first."""

    consents: list[ConsentBody]
    next_cursor: str | None


class Withdrawal(BaseModel):
    """A withdrawn consent, and the deletions that it has begun: one for each voice."""

    consent: ConsentBody
    deletions: list[DeletionBody]


@dataclass(frozen=True, slots=True)
class _Withdrawn:
    consent: Consent | None
    voices: list[UUID]
    """All that hang on it."""
    begun: list[Deletion]


@router.post(
    "",
    status_code=201,
    response_model=ConsentBody,
    **door(*_SCOPES, body=ConsentRequest, form=SpokenConsentRequest, refuses=(409, 410)),
)
async def create_consent(
    request: Request, visit: Visitor, services: Here, idempotency_key: IdempotencyKey = None
) -> Response:
    """Keep a person's consent; in a form it may come with its recording."""
    with services.uploads.take(visit.tenant) if is_form(request) else nullcontext():
        asked, recording = await _read(request, visit, services)
        return await _grant(request, visit, services, idempotency_key, asked, recording)


@router.get("", response_model=ConsentList, **door(*_SCOPES, refuses=(304,)))
async def list_all(
    request: Request,
    visit: Visitor,
    services: Here,
    limit: Limit = 20,
    cursor: Cursor = "",
    if_none_match: IfNoneMatch = None,
) -> Response:
    """List the consents, newest first."""
    page = Page(limit, read_place(_LIST, cursor))
    found = await services.within(visit.tenant, lambda connection: list_consents(connection, visit.tenant, page))
    return show(
        request,
        ConsentList(consents=[show_consent(item) for item in found.items], next_cursor=write_place(_LIST, found.after)),
    )


@router.get("/{consent}", response_model=ConsentDetail, **door(*_SCOPES, refuses=(304, 404)))
async def read_consent(
    request: Request, visit: Visitor, services: Here, consent: IdInPath, if_none_match: IfNoneMatch = None
) -> Response:
    """Show a consent, with who gave it and in which words."""
    consent_id = parse_id("consent", consent)

    async def work(connection: AsyncConnection) -> tuple[Consent | None, Statement | None]:
        found = await find_consent(connection, visit.tenant, consent_id)
        return found, await load_statement(connection, services.keyring, visit.tenant, consent_id)

    found, statement = await services.within(visit.tenant, work)
    if found is None:
        raise UnknownObject("consent", consent)
    signer, text = (None, None) if statement is None else (statement.signer, statement.statement)
    return show(request, ConsentDetail(**dict(show_consent(found)), signer=signer, statement=text))


@router.post("/{consent}/withdraw", **or_accepted(Withdrawal, door(*_SCOPES, refuses=(404, 409), deed=Deed.END)))
async def withdraw_consent(visit: Visitor, services: Here, consent: IdInPath) -> Response:
    """Withdraw a consent: its voices fall silent at once, then they are deleted, and the consent last.

    200 when all of that is done, 202 while some of it is still to do; `deletions` names every one of them, or where
    there are very many voices those that are begun now: the deletion of the consent begins the others.
    """
    ended, deletions = await withdraw(services, visit, parse_id("consent", consent))
    shown = [show_deletion(deletion) for deletion in deletions]
    return tell_deletion(Withdrawal(consent=show_consent(ended), deletions=shown), deletions)


async def keep_consent(
    connection: AsyncConnection,
    services: Services,
    visit: Visit,
    consent_id: UUID,
    terms: Terms,
    statement: Statement,
    recording: bytes | None,
) -> Consent:
    """A consent within the quota, on record; raises Refused, and what `grant_consent` raises."""
    await check_consents(connection, visit.tenant, visit.caller.limits)
    kept = await grant_consent(
        connection, services.keyring, visit.tenant, terms, statement, recording=recording, consent_id=consent_id
    )
    act = visit.act("consent.granted", kept.id, statement_version=terms.statement_version, language=terms.language)
    await append(connection, visit.tenant, act)
    return kept


async def withdraw(services: Services, visit: Visit, consent_id: UUID) -> tuple[Consent, list[Deletion]]:
    """A consent after its withdrawal, and the deletions that this has begun, as far as they are; its voices are silent.

    Raises UnknownObject.
    """
    withdrawn = await services.within(visit.tenant, lambda connection: _withdraw(connection, visit, consent_id))
    if withdrawn.consent is None:
        raise UnknownObject("consent", str(consent_id))
    with suppress(ServerUnavailable):
        # All of them, before the first one is deleted. Without Redis the deletions do it, when it is back.
        await silence_voices(services.redis, withdrawn.voices)
    return withdrawn.consent, await carry_out(services, visit.tenant, withdrawn.begun)


def show_consent(consent: Consent) -> ConsentBody:
    """A consent as clients see it."""
    return ConsentBody(
        id=consent.id,
        state=consent.state,
        statement_version=consent.terms.statement_version,
        language=consent.terms.language,
        purpose=consent.terms.purpose,
        granted_at=consent.granted_at,
        expires_at=consent.terms.expires_at,
        withdrawn_at=consent.withdrawn_at,
        has_recording=consent.has_recording,
    )


async def _read(request: Request, visit: Visitor, services: Services) -> tuple[ConsentRequest, bytes | None]:
    """What was sent, in whichever of the two formats."""
    if not is_form(request):
        return await read_json(request, ConsentRequest), None
    await services.limiter.check(visit.caller, Rate.UPLOAD)
    form = await read_form(request, services.max_recording_bytes)
    return parse_model(ConsentRequest, dict(form.fields)), form.recording


async def _grant(
    request: Request,
    visit: Visit,
    services: Services,
    idempotency_key: str | None,
    asked: ConsentRequest,
    recording: bytes | None,
) -> Response:
    terms = Terms(asked.statement_version, asked.language, asked.purpose, asked.expires_at)

    async def work(connection: AsyncConnection, consent_id: UUID) -> Outcome:
        statement = Statement(asked.signer, asked.statement)
        kept = await keep_consent(connection, services, visit, consent_id, terms, statement, recording)
        return Outcome(show_consent(kept), f"/v1/consents/{kept.id}")

    digest = partial(digest_of, asked, recording)
    once = Once(services, visit.tenant, request, idempotency_key, digest)
    return (await once.do(work)).answer()


async def _withdraw(connection: AsyncConnection, visit: Visitor, consent_id: UUID) -> _Withdrawn:
    """Nothing speaks by the consent from this transaction's end on; its voices' deletions come before its own."""
    tenant = visit.tenant
    try:
        ended = await end_consent(connection, tenant, consent_id, ConsentState.WITHDRAWN)
        hanging, acts = ended.voices, [visit.act("consent.withdrawn", consent_id, voices=len(ended.voices))]
        acts += [reject(lost, visit.actor, visit.origin) for lost in ended.rejected]
    except IllegalTransition:
        # It is not there, or another came first: then the deletions are those that he has begun.
        hanging, acts = [], []
    things = [*((ObjectKind.VOICE, voice) for voice in hanging[:AT_ONCE]), (ObjectKind.CONSENT, consent_id)]
    wishes = [Wish(kind, thing, Reason.WITHDRAWN, visit.actor, visit.origin) for kind, thing in things]
    begun = await request_deletions(connection, tenant, wishes)
    await append_all(connection, tenant, acts)
    # One that somebody else withdrew a moment ago may be gone already: whoever comes second is told the same.
    found = await find_consent(connection, tenant, consent_id, deleted=True)
    return _Withdrawn(found, hanging, [deletion for deletion in begun if deletion is not None])
