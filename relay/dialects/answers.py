"""What the answers of all dialects have alike: an id, when to try again, and which error is told how."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from uuid import uuid4

import structlog
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from relay.api.problems import RETRY_AFTER_MS, translate
from relay.doors.http_audio import BrokenTransfer
from relay.errors import RelayError, RequestRefused
from storage.errors import StorageError

log = structlog.get_logger()

Answer = Callable[[Request, RelayError], Response]
"""How a dialect tells an error."""
Handler = Callable[[Request, Exception], Awaitable[Response]]

REQUEST_ID = "x-request-id"
_LATER = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
_TRIED_AGAIN = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS})


class RequestIds:
    """Gives every request over HTTP an id, which clients show with an error and nothing here remembers.

    It is `request.state.request_id`, and goes out in `header`.
    """

    def __init__(self, app: ASGIApp, header: str = REQUEST_ID, prefix: str = "") -> None:
        self.app = app
        self._header = header
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes everything on."""
        name = scope.setdefault("state", {})["request_id"] = f"{self._prefix}{uuid4()}"

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[self._header] = name
            await send(message)

        await self.app(scope, receive, send_named)


def advise(error: RelayError, status: int) -> dict[str, str]:
    """The headers of an error that is told with this status: what to bring, when to come again, whether to.

    `x-should-retry` is what the clients of OpenAI and Cartesia obey, which otherwise try 408, 409, 429 and 5xx again. A
    fault of ours may be gone the next time.
    """
    headers = {"Cache-Control": "no-store"}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if status in _LATER:
        headers["Retry-After"] = str(math.ceil((error.retry_after_ms or RETRY_AFTER_MS) / 1000))
    ours = status >= HTTPStatus.INTERNAL_SERVER_ERROR and error.code != RelayError.code
    if not error.retryable and (ours or status in _TRIED_AGAIN):
        headers["x-should-retry"] = "false"
    return headers


def make_handlers(answer: Answer, document: str, not_found: str = "not_found") -> Mapping[type[Exception], Handler]:
    """Starlette's exception handlers of a dialect; `document` says what there is, `not_found` is its code for a 404."""

    async def handle_relay_error(request: Request, error: Exception) -> Response:
        return answer(request, error if isinstance(error, RelayError) else RelayError("a fault of ours"))

    async def handle_storage_error(request: Request, error: Exception) -> Response:
        return answer(request, translate(error))

    async def handle_http_error(request: Request, error: Exception) -> Response:
        """What the router refuses: no such path, or no such method there."""
        status = error.status_code if isinstance(error, HTTPException) else HTTPStatus.INTERNAL_SERVER_ERROR
        code = "method_not_allowed" if status == HTTPStatus.METHOD_NOT_ALLOWED else not_found
        text = f"there is nothing at {request.method} {request.url.path[:100]!r}; {document} says what there is"
        answered = answer(request, RequestRefused(status, code, text))
        answered.headers.update((error.headers or {}) if isinstance(error, HTTPException) else {})
        return answered

    async def handle_fault(request: Request, error: Exception) -> Response:
        """Whatever nobody expected: the log has it, the client has a sentence. A transfer that broke is in the log."""
        if not isinstance(error, BrokenTransfer):
            log.error("a request broke", exc_info=error)
        return answer(request, RelayError("a fault of ours; try again, and tell us if it stays"))

    return {
        RelayError: handle_relay_error,
        StorageError: handle_storage_error,
        HTTPException: handle_http_error,
        Exception: handle_fault,
    }
