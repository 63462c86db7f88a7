"""The routes of WebRTC: WHEP, and Pipecat's SmallWebRTC at the addresses that its clients know."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus

from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from relay.api.services import Services
from relay.doors.reception import Reception
from relay.webrtc.requests import Desk
from relay.webrtc.smallwebrtc import SmallWebRtc
from relay.webrtc.terms import WebrtcTerms
from relay.webrtc.whep import ENDPOINT, Whep

_PREFLIGHT_S = 600
_Handler = Callable[[Request], Awaitable[Response]]


def make_routes(services: Services, reception: Reception, terms: WebrtcTerms) -> list[Route]:
    """What the relay's application has to lead to; aiortc is loaded when the first peer comes."""
    desk = Desk(services, reception, terms)
    whep, small = Whep(desk), SmallWebRtc(desk)
    allowed = _allow(terms.origins)
    session = f"{ENDPOINT}/{{session}}"
    offers: dict[str, _Handler] = {"POST": small.offer, "PATCH": small.trickle}
    paths: dict[str, dict[str, _Handler]] = {
        ENDPOINT: {"OPTIONS": whep.show_options, "POST": whep.connect},
        session: {"PATCH": whep.trickle, "DELETE": whep.leave},
        f"{session}/messages": {"POST": whep.say},
        "/start": {"POST": small.start},
        "/api/offer": offers,
        "/sessions/{session}/api/offer": offers,
    }
    return [_make_route(path, handlers, allowed) for path, handlers in paths.items()]


def _make_route(path: str, handlers: dict[str, _Handler], middleware: list[Middleware]) -> Route:
    """One route a path, so that a browser's preflight finds one whatever it asks for."""
    methods = sorted({*handlers, "OPTIONS"})

    async def show_methods(_: Request) -> Response:
        return Response(status_code=HTTPStatus.NO_CONTENT, headers={"Allow": ", ".join(methods)})

    async def act(request: Request) -> Response:
        return await handlers.get(request.method, show_methods)(request)

    return Route(path, act, methods=methods, middleware=middleware)


def _allow(origins: tuple[str, ...]) -> list[Middleware]:
    """Pages of other origins may call if the operator has named them (CORS, WHATWG Fetch); keys come in a header."""
    if not origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=("POST", "PATCH", "DELETE"),
            allow_headers=("Authorization", "Content-Type", "If-Match"),
            expose_headers=("Location", "ETag", "Link", "Retry-After"),
            max_age=_PREFLIGHT_S,
        )
    ]
