"""Consents and voices over HTTP (docs/protocol.md, "Voices over HTTP")."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

import structlog
from celery import Celery
from pydantic import BaseModel, ConfigDict, Field
from redis.asyncio import Redis
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from relay.authentication import authenticate
from relay.errors import InvalidMessage, Refused, ServiceUnavailable, UnknownConsent, UnknownVoice
from relay.uploads import read_enrolment, read_json
from storage.cold_jobs import send_enrolment
from storage.database import Database
from storage.encryption.keyring import RootKey
from storage.errors import ServerUnavailable
from storage.streams.results import bury_voice
from storage.tables import VoiceState
from storage.voices.consents import Consent, grant_consent
from storage.voices.voices import Voice, create_voice, delete_voice, find_voice, list_voices

log = structlog.get_logger()

MAX_WAIT_S = 30.0
MAX_UPLOADS = 8
_FIRST_POLL_S = 0.05
_LAST_POLL_S = 0.5
_SEND_TIMEOUT_S = 5.0
_STALE_S = 120.0


class ConsentBody(BaseModel):
    """A person's permission, as a client states it."""

    model_config = ConfigDict(frozen=True, str_strip_whitespace=True)

    subject: Annotated[str, Field(min_length=1, max_length=200)]
    statement: Annotated[str, Field(min_length=1, max_length=2000)]


@dataclass(frozen=True, slots=True)
class VoicesApi:
    """The handlers, over what they need."""

    database: Database
    redis: Redis
    celery: Celery
    root: RootKey
    max_recording_bytes: int
    uploads: asyncio.Semaphore

    def routes(self) -> list[Route]:
        """The resources and their methods."""
        return [
            Route("/v1/consents", self.post_consent, methods=["POST"]),
            Route("/v1/voices", self.post_voice, methods=["POST"]),
            Route("/v1/voices", self.get_voices, methods=["GET"]),
            Route("/v1/voices/{voice_id}", self.get_voice, methods=["GET"]),
            Route("/v1/voices/{voice_id}", self.remove_voice, methods=["DELETE"]),
        ]

    async def post_consent(self, request: Request) -> Response:
        """Record a consent."""
        tenant = await authenticate(request, self.database)
        body = await read_json(request, ConsentBody)
        consent = Consent(body.subject, body.statement)
        consent_id, granted_at = await grant_consent(self.database, self.root, tenant, consent)
        answer = {"id": str(consent_id), "subject": body.subject, "granted_at": granted_at.isoformat()}
        return JSONResponse(answer, status_code=201)

    async def post_voice(self, request: Request) -> Response:
        """Take a reference recording and have it enrolled."""
        tenant = await authenticate(request, self.database)
        if self.uploads.locked():
            raise Refused("overloaded", f"{MAX_UPLOADS} recordings are being taken already; try again in a few seconds")
        async with self.uploads:
            form = await read_enrolment(request, self.max_recording_bytes)
            voice = await create_voice(
                self.database,
                self.root,
                tenant,
                name=form.name,
                consent=_parse_id(form.consent, UnknownConsent(form.consent)),
                upload=form.recording,
            )
        if voice is None:
            raise UnknownConsent(form.consent)
        await self._send_enrolment(tenant, voice)
        return JSONResponse(_as_dict(voice), status_code=202)

    async def get_voices(self, request: Request) -> Response:
        """List the tenant's voices."""
        tenant = await authenticate(request, self.database)
        return JSONResponse({"voices": [_as_dict(voice) for voice in await list_voices(self.database, tenant)]})

    async def get_voice(self, request: Request) -> Response:
        """Show a voice; with `wait`, as soon as it is not pending any more."""
        tenant = await authenticate(request, self.database)
        wait_s = _parse_wait(request.query_params.get("wait", "0"))
        deadline = asyncio.get_running_loop().time() + wait_s
        poll_s = _FIRST_POLL_S
        await self._resend_stale(tenant, await self._find(request, tenant))
        while True:
            voice = await self._find(request, tenant)
            left = deadline - asyncio.get_running_loop().time()
            if voice.state is not VoiceState.PENDING or left <= 0 or await request.is_disconnected():
                return JSONResponse(_as_dict(voice))
            await asyncio.sleep(min(poll_s, left))
            poll_s = min(poll_s * 1.5, _LAST_POLL_S)

    async def remove_voice(self, request: Request) -> Response:
        """Destroy a voice: workers first, so that none speaks on with what it holds in memory."""
        tenant = await authenticate(request, self.database)
        voice = await self._find(request, tenant)
        await bury_voice(self.redis, voice.id)
        if not await delete_voice(self.database, tenant, voice.id):
            raise UnknownVoice(str(voice.id))
        log.info("voice deleted", voice=str(voice.id))
        return JSONResponse({"id": str(voice.id), "state": VoiceState.DELETED})

    async def _find(self, request: Request, tenant: UUID) -> Voice:
        raw = request.path_params["voice_id"]
        voice = await find_voice(self.database, tenant, _parse_id(raw, UnknownVoice(raw)))
        if voice is None:
            raise UnknownVoice(raw)
        return voice

    async def _resend_stale(self, tenant: UUID, voice: Voice) -> None:
        """Ask again for an enrolment whose request may have been lost; twice does no harm."""
        age_s = (datetime.now(UTC) - voice.created_at).total_seconds()
        if voice.state is VoiceState.PENDING and age_s > _STALE_S:
            await asyncio.to_thread(send_enrolment, self.celery, tenant, voice.id, voice.version)

    async def _send_enrolment(self, tenant: UUID, voice: Voice) -> None:
        """Queue the enrolment, or leave nothing half done."""
        try:
            async with asyncio.timeout(_SEND_TIMEOUT_S):
                await asyncio.to_thread(send_enrolment, self.celery, tenant, voice.id, voice.version)
        except (ServerUnavailable, TimeoutError) as error:
            await delete_voice(self.database, tenant, voice.id)
            raise ServiceUnavailable from error


def _as_dict(voice: Voice) -> dict[str, object]:
    error = None
    if voice.error_code is not None:
        error = {"code": voice.error_code, "message": voice.error_message}
    return {
        "id": str(voice.id),
        "name": voice.name,
        "state": voice.state,
        "version": voice.version,
        "error": error,
        "created_at": voice.created_at.isoformat(),
    }


def _parse_id(raw: str, unknown: Exception) -> UUID:
    try:
        return UUID(raw)
    except ValueError as error:
        raise unknown from error


def _parse_wait(raw: str) -> float:
    try:
        wait_s = float(raw)
    except ValueError:
        wait_s = -1.0
    if not 0 <= wait_s <= MAX_WAIT_S:
        raise InvalidMessage(f"`wait` must be a number of seconds from 0 to {MAX_WAIT_S:.0f}", field="wait")
    return wait_s
