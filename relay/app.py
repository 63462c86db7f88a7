"""The relay's application: which door leads where, and how an error looks at each."""

from __future__ import annotations

import math
from dataclasses import dataclass

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from relay import metrics
from relay.authentication import authenticate
from relay.clock import SystemClock
from relay.errors import RelayError, ServiceUnavailable
from relay.hub import Hub
from relay.voices_http import VoicesApi
from relay.websocket import Connection, Limits
from storage.database import Database
from storage.errors import ServerUnavailable

log = structlog.get_logger()

_RETRY_AFTER_MS = 2000


@dataclass(frozen=True, slots=True)
class StreamDoor:
    """The WebSocket of the native protocol."""

    hub: Hub
    database: Database
    limits: Limits

    async def __call__(self, socket: WebSocket) -> None:
        """Refuse before the upgrade, or serve the connection to its end."""
        try:
            tenant = await authenticate(socket, self.database)
        except RelayError as error:
            await socket.send_denial_response(_error_response(error))
            return
        await socket.accept()
        await Connection(socket, tenant, self.hub, self.database, SystemClock(), self.limits).run()


def make_app(voices: VoicesApi, stream: StreamDoor) -> Starlette:
    """Every route, with errors in the native protocol's shape."""

    async def endpoint(socket: WebSocket) -> None:
        await stream(socket)

    return Starlette(
        routes=[*voices.routes(), WebSocketRoute("/v1/stream", endpoint)],
        exception_handlers={
            RelayError: _handle_relay_error,
            ServerUnavailable: _handle_unavailable,
            HTTPException: _handle_http_error,
            Exception: _handle_fault,
        },
    )


def _error_response(error: RelayError) -> Response:
    metrics.ERRORS.labels(error.code).inc()
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
    if error.status in (429, 503):
        headers["Retry-After"] = str(math.ceil((error.retry_after_ms or _RETRY_AFTER_MS) / 1000))
    return JSONResponse({"error": error.as_dict()}, status_code=error.status, headers=headers)


async def _handle_relay_error(_: Request, error: Exception) -> Response:
    return _error_response(error if isinstance(error, RelayError) else RelayError("a fault of ours"))


async def _handle_unavailable(_: Request, error: Exception) -> Response:
    log.warning("a request had to be refused", reason=str(error))
    return _error_response(ServiceUnavailable())


async def _handle_http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    message = {
        404: f"there is nothing at {request.url.path[:100]}; see docs/protocol.md",
        405: f"{request.method} is not for {request.url.path[:100]}; see docs/protocol.md",
    }.get(status, "the request cannot be read")
    code = {404: "not_found", 405: "method_not_allowed"}.get(status, "invalid_request")
    body = {"code": code, "message": message, "field": None, "retryable": False}
    return JSONResponse({"error": body}, status_code=status)


async def _handle_fault(_: Request, error: Exception) -> Response:
    log.error("a request broke", exc_info=error)
    return _error_response(RelayError("a fault of ours; try again, and tell us if it stays"))
