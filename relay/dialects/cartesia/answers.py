"""Answers over HTTP: errors as `{error_code, title, message, request_id}` (Cartesia, "API errors").

Its Python client chooses the exception by the status, tries 408, 409, 429 and 5xx again, waits as `Retry-After` says,
and obeys `x-should-retry`.
"""

from __future__ import annotations

import math
from http import HTTPStatus
from uuid import uuid4

import structlog
from pydantic import BaseModel
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from relay import metrics
from relay.api.answers import JSON
from relay.api.problems import RETRY_AFTER_MS, translate
from relay.dialects.cartesia.refusals import refuse
from relay.doors.http_audio import BrokenTransfer
from relay.errors import RelayError, RequestRefused
from storage.errors import StorageError

log = structlog.get_logger()

REQUEST_ID = "x-request-id"
_LATER = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
_TRIED_AGAIN = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS})


class ErrorBody(BaseModel):
    """What went wrong."""

    error_code: str
    title: str
    message: str
    request_id: str


class RequestIds:
    """Gives every request over HTTP an id, which errors name and nothing here remembers."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes everything on."""
        request = scope.setdefault("state", {})["request_id"] = str(uuid4())

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[REQUEST_ID] = request
            await send(message)

        await self.app(scope, receive, send_named)


def answer_error(error: RelayError, request: str) -> Response:
    """An error as the answer to a request of this id."""
    metrics.ERRORS.labels(error.code).inc()
    refusal = refuse(error)
    body = ErrorBody(error_code=refusal.error_code, title=refusal.title, message=error.message, request_id=request)
    headers = {"Cache-Control": "no-store", **_headers(error, refusal.status)}
    return Response(body.model_dump_json(), status_code=refusal.status, media_type=JSON, headers=headers)


def _headers(error: RelayError, status: int) -> dict[str, str]:
    headers = {}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if status in _LATER:
        headers["Retry-After"] = str(math.ceil((error.retry_after_ms or RETRY_AFTER_MS) / 1000))
    if not error.retryable and (status in _TRIED_AGAIN or status >= HTTPStatus.INTERNAL_SERVER_ERROR):
        headers["x-should-retry"] = "false"
    return headers


async def _handle_relay_error(request: Request, error: Exception) -> Response:
    told = error if isinstance(error, RelayError) else RelayError("a fault of ours")
    return answer_error(told, request.state.request_id)


async def _handle_storage_error(request: Request, error: Exception) -> Response:
    return answer_error(translate(error), request.state.request_id)


async def _handle_http_error(request: Request, error: Exception) -> Response:
    """What the router refuses: no such path, or no such method there."""
    status = error.status_code if isinstance(error, HTTPException) else HTTPStatus.INTERNAL_SERVER_ERROR
    code = "method_not_allowed" if status == HTTPStatus.METHOD_NOT_ALLOWED else "not_found"
    text = f"there is nothing at {request.method} {request.url.path[:100]!r}; docs/cartesia.md says what there is"
    answer = answer_error(RequestRefused(status, code, text), request.state.request_id)
    answer.headers.update((error.headers or {}) if isinstance(error, HTTPException) else {})
    return answer


async def _handle_fault(request: Request, error: Exception) -> Response:
    """Whatever nobody expected: the log has it, the client has a sentence. A transfer that broke is in the log."""
    if not isinstance(error, BrokenTransfer):
        log.error("a request broke", exc_info=error)
    return answer_error(RelayError("a fault of ours; try again, and tell us if it stays"), request.state.request_id)


HANDLERS = {
    RelayError: _handle_relay_error,
    StorageError: _handle_storage_error,
    HTTPException: _handle_http_error,
    Exception: _handle_fault,
}
