"""The models, of which there is one; whatever a client calls the one it wants, this is what it gets."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from relay.api.services import Services
from relay.api.visits import enter
from relay.dialects.elevenlabs.keys import need_key
from relay.dialects.elevenlabs.speech import MAX_TEXT
from relay.dialects.voices import READERS
from relay.entrance.authentication import find_origin
from storage.tenancy.api_keys import Deed

MODEL = {
    "model_id": "timbrelay",
    "name": "Timbrelay",
    "description": "English speech in an enrolled voice; every model_id is taken for this one.",
    "can_be_finetuned": False,
    "can_do_text_to_speech": True,
    "can_do_voice_conversion": False,
    "can_use_style": False,
    "can_use_speaker_boost": False,
    "serves_pro_voices": False,
    "token_cost_factor": 1.0,
    "requires_alpha_access": False,
    "max_characters_request_free_user": MAX_TEXT,
    "max_characters_request_subscribed_user": MAX_TEXT,
    "maximum_text_length_per_request": MAX_TEXT,
    "languages": [{"language_id": "en", "name": "English"}],
    "concurrency_group": "standard",
}


class CatalogueDoor:
    """The list of models."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[Route]:
        """Where it is."""
        return [Route("/v1/models", self.list_models, methods=["GET"])]

    async def list_models(self, request: Request) -> Response:
        """What there is to choose from."""
        await enter(self._services, need_key(request), find_origin(request), scopes=READERS, deed=Deed.READ)
        return JSONResponse([MODEL])
