"""Errors as OpenAI's clients expect them: `{"error": {"message", "type", "param", "code"}}` (OpenAI API reference).

Its Python client chooses the exception by the status, tries 408, 409, 429 and 5xx again, waits as `Retry-After` says,
and obeys `x-should-retry`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from http import HTTPStatus

import structlog
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from relay import metrics
from relay.api.problems import RETRY_AFTER_MS, translate
from relay.doors.http_audio import BrokenTransfer
from relay.errors import RelayError, RequestRefused
from storage.errors import StorageError

log = structlog.get_logger()

JSON = "application/json"
_NOT_OF_THE_REQUEST = frozenset({"Authorization", "Content-Type", "context"})
_NAMES = {"text": "input", "output_format": "response_format"}
"""What the core calls otherwise than OpenAI."""
_BAD_REQUESTS = frozenset({"text_too_long", "nothing_to_say", "invalid_message"})
"""What is a message's fault on a socket, and the request's here."""
_CODES = {
    "unauthorized": "invalid_api_key",
    "rate_limited": "rate_limit_exceeded",
    "quota_exceeded": "insufficient_quota",
}
_TRIED_AGAIN = frozenset({HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS})
_BY_RULE = {
    "missing": "missing_required_parameter",
    "string_too_long": "string_above_max_length",
    "string_too_short": "string_below_min_length",
    "greater_than_equal": "number_below_min_value",
    "less_than_equal": "number_above_max_value",
}
"""pydantic's rules by OpenAI's codes for them."""


class ErrorBody(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    """The part of the request that is at fault, where one is."""
    code: str | None


class ErrorAnswer(BaseModel):
    """An error and nothing else."""

    error: ErrorBody


def describe(error: RelayError) -> ErrorBody:
    """An error of ours in OpenAI's words."""
    field = None if error.field in _NOT_OF_THE_REQUEST else error.field
    return ErrorBody(
        message=error.message,
        type=_type_of(find_status(error), error.code),
        param=None if field is None else _NAMES.get(field, field),
        code=_CODES.get(error.code, error.code),
    )


def find_status(error: RelayError) -> int:
    """OpenAI has no 422 for a bad request, and no 502 for speech that did not come about."""
    if error.code in _BAD_REQUESTS or error.status == HTTPStatus.UNPROCESSABLE_ENTITY:
        return HTTPStatus.BAD_REQUEST
    if error.status == HTTPStatus.BAD_GATEWAY:
        return HTTPStatus.SERVICE_UNAVAILABLE if error.retryable else HTTPStatus.INTERNAL_SERVER_ERROR
    return error.status


def refuse_field(error: ValidationError) -> RequestRefused:
    """What a client is told of the first field that does not fit, and never what it holds."""
    problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
    field = str(problem["loc"][0]) if problem["loc"] else "body"
    code = _BY_RULE.get(problem["type"], "invalid_type" if problem["type"].endswith("_type") else "invalid_value")
    return RequestRefused(HTTPStatus.BAD_REQUEST, code, f"`{field}`: {problem['msg'].lower()}", field=field)


def answer_error(error: RelayError, headers: Mapping[str, str] | None = None) -> Response:
    """An error as the answer to a request."""
    metrics.ERRORS.labels(error.code).inc()
    content = ErrorAnswer(error=describe(error)).model_dump_json()
    merged = {"Cache-Control": "no-store", **_headers(error), **(headers or {})}
    return Response(content, status_code=find_status(error), media_type=JSON, headers=merged)


def _type_of(status: int, code: str) -> str:
    if code == "quota_exceeded":
        return "insufficient_quota"
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return "requests"
    return "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"


def _headers(error: RelayError) -> dict[str, str]:
    status, headers = find_status(error), {}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        headers["Retry-After"] = str(math.ceil((error.retry_after_ms or RETRY_AFTER_MS) / 1000))
    if status in _TRIED_AGAIN and not error.retryable:
        headers["x-should-retry"] = "false"
    return headers


async def _handle_relay_error(_: Request, error: Exception) -> Response:
    return answer_error(error if isinstance(error, RelayError) else RelayError("a fault of ours"))


async def _handle_storage_error(_: Request, error: Exception) -> Response:
    return answer_error(translate(error))


async def _handle_http_error(request: Request, error: Exception) -> Response:
    """What the router refuses: no such path, or no such method there."""
    status = error.status_code if isinstance(error, HTTPException) else HTTPStatus.INTERNAL_SERVER_ERROR
    code = {404: "unknown_url", 405: "method_not_allowed"}.get(status, "invalid_request")
    text = f"there is nothing at {request.method} {request.url.path[:100]!r}; see docs/openai.md for what there is"
    headers = error.headers if isinstance(error, HTTPException) else None
    return answer_error(RequestRefused(status, code, text), headers)


async def _handle_fault(_: Request, error: Exception) -> Response:
    """Whatever nobody expected: the log has it, the client has a sentence. A transfer that broke is in the log."""
    if not isinstance(error, BrokenTransfer):
        log.error("a request broke", exc_info=error)
    return answer_error(RelayError("a fault of ours; try again, and tell us if it stays"))


HANDLERS = {
    RelayError: _handle_relay_error,
    StorageError: _handle_storage_error,
    HTTPException: _handle_http_error,
    Exception: _handle_fault,
}
