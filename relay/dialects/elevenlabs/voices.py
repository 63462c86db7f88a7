"""Voices as ElevenLabs shows them: listed, found, cloned of one sample, renamed, deleted.

A voice needs a consent here, which comes as the label `consent` or in our own header.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from relay.api.bodies import invalid
from relay.api.cursors import read_place, write_place
from relay.api.services import Services
from relay.api.visits import Visit, enter
from relay.dialects.elevenlabs.keys import need_key
from relay.dialects.voices import (
    READERS,
    WRITERS,
    Offered,
    delete_offered,
    find_offered,
    list_offered,
    make_offered,
    read_consent,
    rename_offered,
    take_form,
)
from relay.entrance.authentication import find_origin
from relay.errors import InvalidRequest, RequestRefused
from storage.tenancy.api_keys import Deed, Scope

MAX_LISTED = 1000
"""What the older list gives at once, and how far voices are counted."""
SETTINGS: Mapping[str, object] = {
    "stability": 0.5,
    "similarity_boost": 0.75,
    "style": 0.0,
    "use_speaker_boost": True,
    "speed": 1.0,
}
"""What they call the default; of it only the speed is ours to change."""
CONSENT_WAY = 'the label `consent`: labels={"consent": "..."}'
_FILE = "files"


class _Page(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    page_size: Annotated[int, Field(ge=1, le=100)] = 10
    search: Annotated[str, Field(max_length=200)] = ""
    next_page_token: Annotated[str, Field(max_length=200)] = ""
    include_total_count: bool = True


class VoicesDoor:
    """The routes of voices."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[Route]:
        """Where they are; `settings` and `add` are no voices."""
        return [
            Route("/v1/voices", self.list_all, methods=["GET"]),
            Route("/v2/voices", self.search, methods=["GET"]),
            Route("/v1/voices/add", self.add, methods=["POST"]),
            Route("/v1/voices/settings/default", self.show_default_settings, methods=["GET"]),
            Route("/v1/voices/{voice}", self.show, methods=["GET"]),
            Route("/v1/voices/{voice}", self.delete, methods=["DELETE"]),
            Route("/v1/voices/{voice}/edit", self.edit, methods=["POST"]),
            Route("/v1/voices/{voice}/settings", self.show_settings, methods=["GET"]),
            Route("/v1/voices/{voice}/settings/edit", self.edit_settings, methods=["POST"]),
        ]

    async def list_all(self, request: Request) -> Response:
        """Every voice that is ready, newest first."""
        visit = await self._enter(request, READERS, Deed.READ)
        found = await list_offered(self._services, visit.tenant, limit=MAX_LISTED)
        return JSONResponse({"voices": [_show(voice) for voice in found.items]})

    async def search(self, request: Request) -> Response:
        """The same page by page, and by a part of the name."""
        visit = await self._enter(request, READERS, Deed.READ)
        try:
            page = _Page.model_validate(dict(request.query_params))
        except ValidationError as error:
            raise invalid(error) from error
        kind = f"elevenlabs voices {page.search}"
        place = read_place(kind, page.next_page_token)
        found = await list_offered(self._services, visit.tenant, limit=page.page_size, after=place, search=page.search)
        total = len(found.items)
        if page.include_total_count and (place is not None or found.after is not None):
            everything = await list_offered(self._services, visit.tenant, limit=MAX_LISTED, search=page.search)
            total = len(everything.items)
        answer = {
            "voices": [_show(voice) for voice in found.items],
            "has_more": found.after is not None,
            "total_count": total,
            "next_page_token": write_place(kind, found.after),
        }
        return JSONResponse(answer)

    async def show(self, request: Request) -> Response:
        """One voice, by its id or an alias."""
        return JSONResponse(_show(await self._find(request)))

    async def add(self, request: Request) -> Response:
        """Clone a voice of one sample; it is ready when this is answered, or soon after."""
        visit = await self._enter(request, WRITERS, Deed.CHANGE)
        async with take_form(self._services, visit, request, _FILE) as form:
            name, labels = form.fields.get("name", ""), _read_labels(form.fields.get("labels"))
            consent = read_consent(request, labels.get("consent"), CONSENT_WAY)
            if form.recording is None:
                raise InvalidRequest(f"send one recording as `{_FILE}`", field=_FILE)
            made = await make_offered(self._services, visit, name=name, consent=consent, recording=form.recording)
        return JSONResponse({"voice_id": str(made.id), "requires_verification": False})

    async def edit(self, request: Request) -> Response:
        """Give a voice another name. What else they let one change is not kept here."""
        visit = await self._enter(request, WRITERS, Deed.CHANGE)
        found = await find_offered(self._services, visit.tenant, request.path_params["voice"])
        async with take_form(self._services, visit, request, _FILE) as form:
            if form.recording is not None:
                message = "a voice gets another recording with POST /v1/voices/{voice}/versions of this service"
                raise InvalidRequest(message, field=_FILE)
            await rename_offered(self._services, visit, found.id, form.fields.get("name", ""))
        return JSONResponse({"status": "ok"})

    async def delete(self, request: Request) -> Response:
        """Delete a voice for good; it is silent when this is answered."""
        visit = await self._enter(request, WRITERS, Deed.END)
        found = await find_offered(self._services, visit.tenant, request.path_params["voice"])
        await delete_offered(self._services, visit, found.id)
        return JSONResponse({"status": "ok"})

    async def show_default_settings(self, request: Request) -> Response:
        """The settings of whoever sends none."""
        await self._enter(request, READERS, Deed.READ)
        return JSONResponse(dict(SETTINGS))

    async def show_settings(self, request: Request) -> Response:
        """A voice's settings: no voice has its own."""
        await self._find(request)
        return JSONResponse(dict(SETTINGS))

    async def edit_settings(self, request: Request) -> Response:
        """Nothing that could be kept; better said than taken for done."""
        await self._enter(request, WRITERS, Deed.CHANGE)
        message = "voices keep no settings here; send `voice_settings` with what is to be spoken"
        raise RequestRefused(400, "not_supported", message, field="voice_settings")

    async def _find(self, request: Request) -> Offered:
        visit = await self._enter(request, READERS, Deed.READ)
        return await find_offered(self._services, visit.tenant, request.path_params["voice"])

    async def _enter(self, request: Request, scopes: frozenset[Scope], deed: Deed) -> Visit:
        return await enter(self._services, need_key(request), find_origin(request), scopes=scopes, deed=deed)


def _show(voice: Offered) -> dict[str, Any]:
    return {
        "voice_id": str(voice.id),
        "name": voice.name,
        "category": "cloned",
        "description": None,
        "labels": {"aliases": ", ".join(voice.aliases)} if voice.aliases else {},
        "samples": None,
        "preview_url": None,
        "settings": dict(SETTINGS),
        "fine_tuning": {"is_allowed_to_fine_tune": False, "state": {}},
        "available_for_tiers": [],
        "high_quality_base_model_ids": [],
        "is_owner": True,
        "created_at_unix": int(voice.created_at.timestamp()),
    }


def _read_labels(raw: str | None) -> Mapping[str, str]:
    """Labels as their SDK sends them: an object of texts as JSON, or `null`; raises InvalidRequest."""
    if not raw:
        return {}
    try:
        labels = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("`labels` must be a JSON object of texts", field="labels") from error
    if labels is None:
        return {}
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        raise InvalidRequest("`labels` must be a JSON object of texts", field="labels")
    return labels
