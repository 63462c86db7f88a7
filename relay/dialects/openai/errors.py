"""Errors as OpenAI's clients expect them: `{"error": {"message", "type", "param", "code"}}` (OpenAI API reference)."""

from __future__ import annotations

from http import HTTPStatus

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from relay import metrics
from relay.api.answers import JSON
from relay.dialects.answers import advise, make_handlers
from relay.errors import RelayError, RequestRefused

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


def answer_error(error: RelayError) -> Response:
    """An error as the answer to a request."""
    metrics.ERRORS.labels(error.code).inc()
    content, status = ErrorAnswer(error=describe(error)).model_dump_json(), find_status(error)
    return Response(content, status_code=status, media_type=JSON, headers=advise(error, status))


def _type_of(status: int, code: str) -> str:
    if code == "quota_exceeded":
        return "insufficient_quota"
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return "requests"
    return "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"


def _answer(_: Request, error: RelayError) -> Response:
    return answer_error(error)


HANDLERS = make_handlers(_answer, "docs/openai.md", "unknown_url")
