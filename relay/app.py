"""The relay's application: which door leads where, and how an error looks at each."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from fastapi import FastAPI, Request, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from relay.api import (
    aliases,
    audit,
    consents,
    deletions,
    keys,
    recordings,
    retention,
    service,
    statements,
    tenants,
    usage,
    voices,
)
from relay.api.answers import JSON
from relay.api.document import make_document
from relay.api.entity_tags import tag_of
from relay.api.problems import HANDLERS, answer_problem
from relay.api.services import Services
from relay.dialects.cartesia.app import make_app as make_cartesia
from relay.dialects.elevenlabs.app import make_app as make_elevenlabs
from relay.dialects.openai.app import make_app as make_openai
from relay.doors.reception import Reception
from relay.errors import RequestRefused
from relay.native.document import document_route
from relay.native.stream_door import StreamDoor
from relay.studio import studio_routes
from relay.webrtc.app import make_routes as make_webrtc_routes
from relay.webrtc.terms import WebrtcTerms

ROUTERS = (
    # Before the consents, one of which could be called "statements".
    statements.router,
    consents.router,
    recordings.router,
    voices.router,
    aliases.router,
    usage.router,
    deletions.router,
    keys.router,
    audit.router,
    retention.router,
    tenants.router,
    service.router,
)

DIALECTS: Mapping[str, Callable[[Services, Reception], ASGIApp]] = {
    "cartesia": make_cartesia,
    "elevenlabs": make_elevenlabs,
    "openai": make_openai,
}
"""Vendors whose clients are understood, each under a base URL of its own: their paths overlap with ours."""


class HeadAsGet:
    """HEAD is GET without the body (RFC 9110, section 9.3.2), which the server leaves out."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a HEAD on as a GET."""
        await self.app({**scope, "method": "GET"} if scope.get("method") == "HEAD" else scope, receive, send)


class OneLength:
    """A request that says its length in two ways is a trap for whoever stands before us and reads the other one: it is
    refused, and its connection closed (RFC 9112, section 6.1)."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything else on."""
        names = {name for name, _ in scope.get("headers", ())}
        if scope["type"] == "http" and {b"content-length", b"transfer-encoding"} <= names:
            text = "a request has a `Content-Length` or a `Transfer-Encoding`, and not both"
            error = RequestRefused(400, "invalid_request", text, field="Content-Length")
            await answer_problem(error, {"Connection": "close"})(scope, receive, send)
            return
        await self.app(scope, receive, send)


def make_app(services: Services, reception: Reception, webrtc: WebrtcTerms) -> FastAPI:
    """The API, the document of it, the door of the native protocol, and the studio."""
    app = make_api(services)
    content = json.dumps(make_document(app)).encode()
    headers = {"ETag": tag_of(content), "Cache-Control": "no-cache"}

    async def read_document(_: Request) -> Response:
        return Response(content, media_type=JSON, headers=headers)

    door = StreamDoor(reception)

    async def open_stream(socket: WebSocket) -> None:
        await door(socket)

    app.router.routes.append(Route("/v1/openapi.json", read_document, methods=["GET"]))
    app.router.routes.append(document_route())
    app.router.routes.append(WebSocketRoute("/v1/stream", open_stream))
    app.router.routes.extend(make_webrtc_routes(services, reception, webrtc))
    app.router.routes.extend(studio_routes())
    for name, make_dialect in DIALECTS.items():
        app.router.routes.append(Mount(f"/{name}", make_dialect(services, reception)))
    app.add_middleware(HeadAsGet)
    app.add_middleware(OneLength)
    return app


def make_api(services: Services | None) -> FastAPI:
    """Every route over HTTP, with its errors as problems; without services it only describes itself."""
    app = FastAPI(title="Timbrelay", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.state.services = services
    for router in ROUTERS:
        app.router.routes.extend(router.routes)
    for error, handler in HANDLERS.items():
        app.add_exception_handler(error, handler)
    return app
