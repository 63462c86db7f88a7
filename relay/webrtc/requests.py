"""What the handlers of signalling have alike: who asks, and with what body."""

from __future__ import annotations

import asyncio
import importlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.requests import Request

from relay.api.bodies import receive, unsupported
from relay.api.services import Services
from relay.doors.reception import Reception
from relay.entrance.authentication import find_origin, read_bearer
from relay.entrance.visitors import Visitor
from relay.errors import InvalidRequest, RequestRefused
from relay.webrtc.terms import WebrtcTerms

if TYPE_CHECKING:
    from relay.webrtc.peers import Peers


@dataclass(slots=True)
class Desk:
    """Where signalling comes in; a relay without peers has loaded nothing of aiortc."""

    services: Services
    reception: Reception
    terms: WebrtcTerms
    _peers: Peers | None = None
    _loading: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def peers(self) -> Peers:
        """All peers of this process."""
        async with self._loading:
            if self._peers is None:
                # Off the loop: it takes a good part of a second, in which others are listening.
                module = await asyncio.to_thread(importlib.import_module, "relay.webrtc.peers")
                self._peers = module.Peers(self.services, self.reception, self.terms)
            return self._peers

    async def admit(self, request: Request) -> tuple[Visitor, str]:
        """Who asks, and their key; raises as `Reception.admit`."""
        key = read_bearer(request)
        return await self.reception.admit(key, find_origin(request)), key

    async def check_voice(self, visitor: Visitor, voice: str | None) -> None:
        """Raises UnknownVoice for one that could not be spoken with."""
        if voice is not None:
            await self.reception.gate.casting.cast(visitor.tenant, voice)


async def read_text(request: Request, media_type: str, limit: int) -> str:
    """The body as text; raises RequestRefused (408, 413, 415) or InvalidRequest."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != media_type:
        raise unsupported(f"send the body as `{media_type}`")
    too_large = RequestRefused(413, "body_too_large", f"this body has at most {limit // 1024} KiB")
    raw = b"".join([part async for part in receive(request, limit, too_large)])
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest("the body is not text in UTF-8") from error
