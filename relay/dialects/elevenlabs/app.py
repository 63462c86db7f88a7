"""ElevenLabs' dialect as an application of its own: its base URL is where it is mounted."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import WebSocketRoute

from relay.api.services import Services
from relay.dialects.answers import RequestIds
from relay.dialects.elevenlabs.catalogue import CatalogueDoor
from relay.dialects.elevenlabs.refusals import HANDLERS
from relay.dialects.elevenlabs.sockets import make_doors
from relay.dialects.elevenlabs.speech import SpeechDoor
from relay.dialects.elevenlabs.voices import VoicesDoor
from relay.doors.reception import Reception


def make_app(services: Services, reception: Reception) -> Starlette:
    """Its routes, and its errors in its own words."""
    sockets = [
        WebSocketRoute(f"/v1/text-to-speech/{{voice}}/{name}", door) for name, door in make_doors(reception).items()
    ]
    routes = [
        *sockets,
        *SpeechDoor(reception).routes(),
        *VoicesDoor(services).routes(),
        *CatalogueDoor(services).routes(),
    ]
    middleware = [Middleware(RequestIds, header="request-id")]
    app = Starlette(routes=routes, middleware=middleware, exception_handlers=dict(HANDLERS))
    app.router.redirect_slashes = False
    return app
