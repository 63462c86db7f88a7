"""OpenAI's dialect as an application of its own; its base URL is `https://host/openai/v1` where it is mounted."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from relay.api.answers import tell
from relay.api.services import Services
from relay.dialects.answers import RequestIds
from relay.dialects.openai.consents import ConsentsDoor
from relay.dialects.openai.errors import HANDLERS
from relay.dialects.openai.models import ModelList, find_model, list_models
from relay.dialects.openai.speech import SpeechDoor
from relay.dialects.openai.voices import VoicesDoor, let_in
from relay.dialects.voices import READERS
from relay.doors.reception import Reception
from storage.tenancy.api_keys import Deed


@dataclass(frozen=True, slots=True)
class ModelsDoor:
    """Names the models."""

    services: Services

    async def greet(self, _: Request) -> Response:
        """What LiveKit asks for in order to have a connection ready; takes no key."""
        return tell(ModelList(data=[]))

    async def list_all(self, request: Request) -> Response:
        """List the names."""
        await let_in(self.services, request, READERS, Deed.READ)
        return tell(list_models())

    async def read(self, request: Request) -> Response:
        """Show one."""
        await let_in(self.services, request, READERS, Deed.READ)
        return tell(find_model(request.path_params["model"]))


def make_app(services: Services, reception: Reception) -> Starlette:
    """Speech, models, voices and consents, with errors in their own shape."""
    speech, models = SpeechDoor(reception), ModelsDoor(services)
    voices, consents = VoicesDoor(services), ConsentsDoor(services)
    routes = [
        Route("/v1", models.greet, methods=["GET"]),
        Route("/v1/", models.greet, methods=["GET"]),
        Route("/v1/models", models.list_all, methods=["GET"]),
        Route("/v1/models/{model}", models.read, methods=["GET"]),
        Route("/v1/audio/speech", speech.speak, methods=["POST"]),
        Route("/v1/audio/voices", voices.create, methods=["POST"]),
        Route("/v1/audio/voices", voices.list_all, methods=["GET"]),
        Route("/v1/audio/voices/{voice}", voices.read, methods=["GET"]),
        Route("/v1/audio/voices/{voice}", voices.delete, methods=["DELETE"]),
        Route("/v1/audio/voice_consents", consents.create, methods=["POST"]),
        Route("/v1/audio/voice_consents", consents.list_all, methods=["GET"]),
        Route("/v1/audio/voice_consents/{consent}", consents.read, methods=["GET"]),
        Route("/v1/audio/voice_consents/{consent}", consents.change, methods=["POST"]),
        Route("/v1/audio/voice_consents/{consent}", consents.delete, methods=["DELETE"]),
    ]
    middleware = [Middleware(RequestIds, prefix="req_")]
    app = Starlette(routes=routes, middleware=middleware, exception_handlers=dict(HANDLERS))
    app.router.redirect_slashes = False
    return app
