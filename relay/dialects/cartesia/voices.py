"""`/voices`: the tenant's own voices, as Cartesia's clients see them. There are no others here."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from relay.api.answers import nothing, tell
from relay.api.bodies import invalid
from relay.api.services import Services
from relay.api.texts import parse_id
from relay.dialects.cartesia.bodies import read_body
from relay.dialects.cartesia.keys import let_in
from relay.dialects.languages import LANGUAGE, check_language
from relay.dialects.voices import (
    READERS,
    WRITERS,
    Offered,
    delete_offered,
    find_offered,
    find_place,
    list_offered,
    make_offered,
    read_consent,
    rename_offered,
    take_form,
)
from relay.errors import InvalidRequest
from storage.tenancy.api_keys import Deed

CLIP = "clip"


class Locale(BaseModel):
    """A language in a country."""

    locale: str = "en-US"
    is_native: bool = True


class VoiceBody(BaseModel):
    """A voice in all fields that the versions of Cartesia's API have; what is not kept here is empty."""

    id: str
    user_id: str
    name: str
    created_at: datetime
    description: str = ""
    tagline: str = ""
    access: Literal["private"] = "private"
    visibility: Literal["owner"] = "owner"
    is_owner: bool = True
    is_public: bool = False
    language: str = LANGUAGE
    locales: list[Locale] = Field(default_factory=lambda: [Locale()])
    accent: str | None = None
    country: str | None = None
    gender: str | None = None
    preview_file_url: str | None = None


class VoiceList(BaseModel):
    """Voices, newest first."""

    data: list[VoiceBody]
    has_more: bool
    next_page: str | None
    """What to send as `starting_after`."""


class ListQuery(BaseModel):
    """Which voices are asked for; `is_owner` and `expand[]` make no difference here."""

    model_config = ConfigDict(frozen=True)

    limit: Annotated[int, Field(ge=1, le=100)] = 10
    starting_after: Annotated[str, Field(max_length=64)] = ""
    ending_before: str = ""
    q: Annotated[str, Field(max_length=200)] = ""
    gender: str = ""


class Change(BaseModel):
    """What of a voice can be changed."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    name: str | None = None


@dataclass(frozen=True, slots=True)
class VoicesDoor:
    """Keeps the tenant's voices."""

    services: Services

    async def list_all(self, request: Request) -> Response:
        """List the voices that are ready."""
        visit = await let_in(self.services, request, READERS, Deed.READ)
        asked = read_query(request)
        after = await find_place(self.services, visit.tenant, asked.starting_after)
        found = await list_offered(self.services, visit.tenant, limit=asked.limit, after=after, search=asked.q)
        # Nobody's gender is on record, so no voice is of the one that is asked for.
        shown = [] if asked.gender else [show_voice(voice, visit.tenant) for voice in found.items]
        more = bool(shown) and found.after is not None
        return tell(VoiceList(data=shown, has_more=more, next_page=shown[-1].id if more else None))

    async def read(self, request: Request) -> Response:
        """Show a voice, by its id or an alias."""
        visit = await let_in(self.services, request, READERS, Deed.READ)
        return tell(
            show_voice(await find_offered(self.services, visit.tenant, request.path_params["id"]), visit.tenant)
        )

    async def change(self, request: Request) -> Response:
        """Give a voice another name."""
        visit = await let_in(self.services, request, WRITERS, Deed.CHANGE)
        asked = await read_body(request, Change)
        if asked.name is None:
            raise InvalidRequest("`name` is missing: it is all that can be changed of a voice here", field="name")
        voice = parse_id("voice", request.path_params["id"])
        return tell(show_voice(await rename_offered(self.services, visit, voice, asked.name), visit.tenant))

    async def delete(self, request: Request) -> Response:
        """Delete a voice for good; it is silent when this is answered."""
        visit = await let_in(self.services, request, WRITERS, Deed.END)
        await delete_offered(self.services, visit, parse_id("voice", request.path_params["id"]))
        return nothing()

    async def clone(self, request: Request) -> Response:
        """Make a voice of a form's `name`, `clip` and `consent`; answers when it can speak."""
        visit = await let_in(self.services, request, WRITERS, Deed.CHANGE)
        async with take_form(self.services, visit, request, CLIP) as form:
            if form.recording is None:
                raise InvalidRequest(f"`{CLIP}` must be a file in the form", field=CLIP)
            check_language("language", form.fields.get("language"))
            consent = read_consent(request, form.fields.get("consent"), "the form field `consent`")
            made = await make_offered(
                self.services,
                visit,
                name=form.fields.get("name", ""),
                consent=consent,
                recording=form.recording,
                file=CLIP,
            )
        return tell(show_voice(made, visit.tenant))


def read_query(request: Request) -> ListQuery:
    """Raises InvalidRequest with the parameter at fault."""
    try:
        asked = ListQuery.model_validate(dict(request.query_params))
    except ValidationError as error:
        raise invalid(error) from error
    if asked.ending_before:
        text = "`ending_before`: voices are listed forwards alone; go on with `starting_after`"
        raise InvalidRequest(text, field="ending_before")
    return asked


def show_voice(voice: Offered, tenant: UUID) -> VoiceBody:
    """A voice as Cartesia's clients see it."""
    return VoiceBody(id=str(voice.id), user_id=str(tenant), name=voice.name, created_at=voice.created_at)
