"""Cartesia's dialect as an application of its own; its base URL is `https://host/cartesia` where it is mounted."""

from __future__ import annotations

from importlib.metadata import version

from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute

from relay.api.answers import tell
from relay.api.services import Services
from relay.dialects.answers import RequestIds
from relay.dialects.cartesia.access_tokens import TokensDoor
from relay.dialects.cartesia.answers import HANDLERS
from relay.dialects.cartesia.socket_door import SocketDoor
from relay.dialects.cartesia.speech import SpeechDoor
from relay.dialects.cartesia.voices import VoicesDoor
from relay.doors.reception import Reception


class Status(BaseModel):
    """That somebody is there."""

    ok: bool = True
    version: str


async def greet(_: Request) -> Response:
    """The SDK's `get_status`; takes no key."""
    return tell(Status(version=version("timbrelay")))


def make_app(services: Services, reception: Reception) -> Starlette:
    """Speech, voices and access tokens, with errors in their own shape."""
    speech, socket = SpeechDoor(reception), SocketDoor(reception)
    voices, tokens = VoicesDoor(services), TokensDoor(services)
    routes = [
        Route("/", greet, methods=["GET"]),
        Route("/status", greet, methods=["GET"]),
        WebSocketRoute("/tts/websocket", socket.speak),
        Route("/tts/bytes", speech.send_bytes, methods=["POST"]),
        Route("/tts/sse", speech.send_events, methods=["POST"]),
        Route("/voices", voices.list_all, methods=["GET"]),
        Route("/voices/clone", voices.clone, methods=["POST"]),
        Route("/voices/{id}", voices.read, methods=["GET"]),
        Route("/voices/{id}", voices.change, methods=["PATCH"]),
        Route("/voices/{id}", voices.delete, methods=["DELETE"]),
        Route("/access-token", tokens.create, methods=["POST"]),
    ]
    app = Starlette(routes=routes, middleware=[Middleware(RequestIds)], exception_handlers=dict(HANDLERS))
    app.router.redirect_slashes = False
    return app
