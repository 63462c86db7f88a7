"""`/v1/audio/voice_consents`: our consents in OpenAI's shape (API reference, "Voice consents").

There a consent is a recording with a label; here it is what a named person has agreed to. So the label is the signer,
the words are ours in the language that is asked for, and the recording is kept as the consent spoken aloud.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID, uuid4

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.requests import Request
from starlette.responses import Response

from relay.api.answers import tell
from relay.api.consents import keep_consent, withdraw
from relay.api.services import Services
from relay.api.statements import VERSION, WRITTEN
from relay.api.texts import Language, Name, parse_id
from relay.api.visits import Visit
from relay.dialects.openai.errors import refuse_field
from relay.dialects.openai.pages import PageQuery, make_list, read_page
from relay.dialects.openai.voices import let_in
from relay.dialects.voices import WRITERS, take_form
from relay.errors import InvalidRequest, RequestRefused, UnknownObject
from storage.paging import Page
from storage.tenancy.api_keys import Deed
from storage.tenancy.tenants import find_tenant
from storage.voices.consents import Consent, Statement, Terms, find_consent, list_consents, load_statement

RECORDING = "recording"
PURPOSE = "speech in my voice, made from text"


class ConsentForm(BaseModel):
    """The texts of a form; `purpose` is ours."""

    model_config = ConfigDict(frozen=True)

    name: Name
    language: Language
    purpose: Annotated[Name, Field(description="What the voice may be used for.")] = PURPOSE


class ConsentObject(BaseModel):
    """A consent."""

    object: Literal["audio.voice_consent"] = "audio.voice_consent"
    id: str
    name: str
    language: str
    created_at: int


class ConsentDeleted(BaseModel):
    """A consent that permits nothing any more."""

    object: Literal["audio.voice_consent"] = "audio.voice_consent"
    id: str
    deleted: Literal[True] = True


@dataclass(frozen=True, slots=True)
class ConsentsDoor:
    """Keeps what people have agreed to."""

    services: Services

    async def create(self, request: Request) -> Response:
        """Keep a person's consent with the recording in which it is said aloud."""
        visit = await let_in(self.services, request, WRITERS, Deed.CHANGE)
        async with take_form(self.services, visit, request, RECORDING) as form:
            asked = _read_fields(dict(form.fields))
            if not form.recording:
                raise InvalidRequest(f"`{RECORDING}` must be a file in the form", field=RECORDING)
            kept = await self._keep(visit, asked, form.recording)
        return tell(_show(kept, asked.name))

    async def list_all(self, request: Request) -> Response:
        """List the consents, newest first."""
        visit = await let_in(self.services, request, WRITERS, Deed.READ)
        page = read_page(request)
        shown, more = await self.services.within(
            visit.tenant, lambda connection: self._list(connection, visit.tenant, page)
        )
        return tell(make_list(shown, [consent.id for consent in shown], more))

    async def read(self, request: Request) -> Response:
        """Show a consent."""
        visit = await let_in(self.services, request, WRITERS, Deed.READ)
        consent = parse_id("consent", request.path_params["consent"])

        async def work(connection: AsyncConnection) -> ConsentObject:
            return await self._load(connection, visit.tenant, await _find(connection, visit.tenant, consent))

        return tell(await self.services.within(visit.tenant, work))

    async def change(self, request: Request) -> Response:
        """Refuses: who has agreed is part of what they have agreed to."""
        await let_in(self.services, request, WRITERS, Deed.CHANGE)
        text = "`name` is who has agreed, and cannot be changed afterwards; make another consent and delete this one"
        raise RequestRefused(400, "unsupported_value", text, field="name")

    async def delete(self, request: Request) -> Response:
        """Withdraw a consent: its voices are silent when this is answered, and are deleted with it."""
        visit = await let_in(self.services, request, WRITERS, Deed.END)
        ended, _ = await withdraw(self.services, visit, parse_id("consent", request.path_params["consent"]))
        return tell(ConsentDeleted(id=str(ended.id)))

    async def _keep(self, visit: Visit, asked: ConsentForm, recording: bytes) -> Consent:
        terms = Terms(VERSION, asked.language, asked.purpose, None)
        wording = find_wording(asked.language)

        async def work(connection: AsyncConnection) -> Consent:
            tenant = await find_tenant(connection, visit.tenant)
            words = wording.format(
                signer=asked.name, tenant="" if tenant is None else tenant.name, purpose=asked.purpose
            )
            statement = Statement(asked.name, words)
            return await keep_consent(connection, self.services, visit, uuid4(), terms, statement, recording)

        return await self.services.within(visit.tenant, work)

    async def _list(
        self, connection: AsyncConnection, tenant: UUID, page: PageQuery
    ) -> tuple[list[ConsentObject], bool]:
        found = await list_consents(connection, tenant, Page(page.limit, await _place(connection, tenant, page)))
        return [await self._load(connection, tenant, consent) for consent in found.items], found.after is not None

    async def _load(self, connection: AsyncConnection, tenant: UUID, consent: Consent) -> ConsentObject:
        """With its signer; one that is being deleted has none any more."""
        statement = await load_statement(connection, self.services.keyring, tenant, consent.id)
        return _show(consent, "" if statement is None else statement.signer)


def find_wording(language: str) -> str:
    """What is agreed to, in a language by its first subtag (BCP 47); raises RequestRefused (400)."""
    wording = WRITTEN.get(language.partition("-")[0].lower())
    if wording is None:
        text = f"there is no statement in this language, only in {', '.join(WRITTEN)}; POST /v1/consents takes your own"
        raise RequestRefused(400, "unsupported_value", text, field="language")
    return wording


async def _find(connection: AsyncConnection, tenant: UUID, consent: UUID) -> Consent:
    found = await find_consent(connection, tenant, consent)
    if found is None:
        raise UnknownObject("consent", str(consent))
    return found


async def _place(connection: AsyncConnection, tenant: UUID, page: PageQuery) -> tuple[datetime, UUID] | None:
    if not page.after:
        return None
    last = await _find(connection, tenant, parse_id("consent", page.after))
    return last.granted_at, last.id


def _show(consent: Consent, name: str) -> ConsentObject:
    created = int(consent.granted_at.timestamp())
    return ConsentObject(id=str(consent.id), name=name, language=consent.terms.language, created_at=created)


def _read_fields(fields: dict[str, str]) -> ConsentForm:
    try:
        return ConsentForm.model_validate(fields)
    except ValidationError as error:
        raise refuse_field(error) from error
