"""`/v1/audio/voices`: voices of the tenant's own, made of a recording and a consent, listed and deleted.

Made and deleted as in OpenAI's API reference ("Create voice"), which has no list of them; ours is like its others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from relay.api.answers import tell
from relay.api.services import Services
from relay.api.texts import parse_id
from relay.api.visits import Visit, enter
from relay.dialects.openai.pages import make_list, read_page
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
    take_form,
)
from relay.entrance.authentication import find_origin, read_bearer
from relay.errors import InvalidRequest, RequestRefused
from storage.states import VoiceState
from storage.tenancy.api_keys import Deed, Scope

SAMPLE = "audio_sample"


class VoiceObject(BaseModel):
    """A voice; `state` and `aliases` are ours."""

    object: Literal["audio.voice"] = "audio.voice"
    id: str
    name: str
    type: Literal["audio_sample"] = "audio_sample"
    created_at: int
    state: VoiceState
    aliases: list[str]


class VoiceDeleted(BaseModel):
    """A voice that is gone."""

    object: Literal["audio.voice.deleted"] = "audio.voice.deleted"
    id: str
    deleted: Literal[True] = True


async def let_in(services: Services, request: Request, scopes: frozenset[Scope], deed: Deed) -> Visit:
    """Who asks, by the key in `Authorization`; raises what `enter` raises."""
    return await enter(services, read_bearer(request), find_origin(request), scopes=scopes, deed=deed)


@dataclass(frozen=True, slots=True)
class VoicesDoor:
    """Keeps the tenant's voices."""

    services: Services

    async def create(self, request: Request) -> Response:
        """Make a voice of a form's `name`, `audio_sample` and `consent`; answers when it can speak."""
        visit = await let_in(self.services, request, WRITERS, Deed.CHANGE)
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json":
            raise _no_prompts()
        async with take_form(self.services, visit, request, SAMPLE) as form:
            if form.fields.get("type", SAMPLE) != SAMPLE:
                raise _no_prompts()
            if form.recording is None:
                raise InvalidRequest(f"`{SAMPLE}` must be a file in the form", field=SAMPLE)
            name = form.fields.get("name", "")
            consent = read_consent(request, form.fields.get("consent"), "the field `consent`")
            made = await make_offered(
                self.services, visit, name=name, consent=consent, recording=form.recording, file=SAMPLE
            )
        return tell(show_voice(made))

    async def list_all(self, request: Request) -> Response:
        """List the voices that are ready, newest first."""
        visit = await let_in(self.services, request, READERS, Deed.READ)
        page = read_page(request)
        after = await find_place(self.services, visit.tenant, page.after)
        found = await list_offered(self.services, visit.tenant, limit=page.limit, after=after)
        shown = [show_voice(voice) for voice in found.items]
        return tell(make_list(shown, [voice.id for voice in shown], found.after is not None))

    async def read(self, request: Request) -> Response:
        """Show a voice, by its id or an alias."""
        visit = await let_in(self.services, request, READERS, Deed.READ)
        return tell(show_voice(await find_offered(self.services, visit.tenant, request.path_params["voice"])))

    async def delete(self, request: Request) -> Response:
        """Delete a voice for good; it is silent when this is answered."""
        visit = await let_in(self.services, request, WRITERS, Deed.END)
        voice = parse_id("voice", request.path_params["voice"])
        await delete_offered(self.services, visit, voice)
        return tell(VoiceDeleted(id=str(voice)))


def show_voice(voice: Offered) -> VoiceObject:
    """A voice as OpenAI's clients see it."""
    return VoiceObject(
        id=str(voice.id),
        name=voice.name,
        created_at=int(voice.created_at.timestamp()),
        state=voice.state,
        aliases=list(voice.aliases),
    )


def _no_prompts() -> RequestRefused:
    text = "a voice is made of a recording of its speaker: send a form with `name`, `audio_sample` and `consent`"
    return RequestRefused(400, "unsupported_value", text, field="type")
