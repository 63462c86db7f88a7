"""Our errors in ElevenLabs' words (https://elevenlabs.io/docs/eleven-api/resources/errors): one table for all of them.

Over HTTP `{"detail": {...}}`, and a list as FastAPI makes it for what cannot be read; over a WebSocket one message that
each client takes for an error by another of its keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from relay import metrics
from relay.dialects.answers import advise, make_handlers
from relay.dialects.elevenlabs.options import QUERY_FIELDS
from relay.errors import RelayError

POLICY_VIOLATION = 1008
INTERNAL_ERROR = 1011
MAX_REASON_BYTES = 123
"""What a close frame has room for (RFC 6455, section 5.5)."""


class Spelling(NamedTuple):
    """How one of our codes is told."""

    code: str
    type: str
    status: int | None = None
    """Where theirs is another than ours."""


_SPELLINGS: Mapping[str, Spelling] = {
    "unauthorized": Spelling("invalid_api_key", "authentication_error"),
    "needs_authorization": Spelling("needs_authorization", "authentication_error"),
    "insufficient_scope": Spelling("missing_permissions", "authorization_error"),
    "tenant_suspended": Spelling("account_suspended", "authorization_error"),
    "unknown_voice": Spelling("voice_not_found", "not_found"),
    "unknown_consent": Spelling("consent_not_found", "not_found", 400),
    "text_too_long": Spelling("max_character_limit_exceeded", "validation_error", 400),
    "body_too_large": Spelling("max_character_limit_exceeded", "validation_error", 400),
    "nothing_to_say": Spelling("input_text_empty", "validation_error", 400),
    "too_many_contexts": Spelling("too_many_concurrent_requests", "rate_limit_error"),
    "max_active_conversations": Spelling("max_active_conversations", "rate_limit_error"),
    "rate_limited": Spelling("rate_limit_exceeded", "rate_limit_error"),
    "overloaded": Spelling("system_busy", "rate_limit_error"),
    "quota_exceeded": Spelling("quota_exceeded", "rate_limit_error"),
    "idle": Spelling("input_timeout_exceeded", "validation_error"),
    "invalid_message": Spelling("invalid_input_message", "validation_error"),
    "invalid_request": Spelling("invalid_parameters", "validation_error"),
    "unavailable": Spelling("service_unavailable", "internal_error"),
    "internal": Spelling("internal_error", "internal_error"),
}
"""Every code that has another word there; all others are told as they are."""

_TYPES = {401: "authentication_error", 403: "authorization_error", 404: "not_found", 409: "conflict"}


def spell(error: RelayError) -> Spelling:
    """An error's code, kind and status in the dialect."""
    found = _SPELLINGS.get(error.code)
    if found is not None:
        return found
    kind = _TYPES.get(error.status, "internal_error" if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR else "")
    return Spelling(error.code, kind or "validation_error")


def close_code(error: RelayError) -> int:
    """With which code a WebSocket ends for this error: theirs is 1008 for all that is not the service's own fault."""
    return INTERNAL_ERROR if error.code == RelayError.code else POLICY_VIOLATION


def close_reason(error: RelayError) -> str:
    """The error's sentence, as far as it fits into a close frame."""
    return error.message.encode()[:MAX_REASON_BYTES].decode(errors="ignore")


def answer_error(error: RelayError) -> Response:
    """An error as the answer to a request."""
    metrics.ERRORS.labels(error.code).inc()
    code, kind, status = spell(error)
    status = status or error.status
    if error.status == HTTPStatus.UNPROCESSABLE_ENTITY and error.code in ("invalid_request", "invalid_message"):
        place = "query" if error.field in QUERY_FIELDS else "body"
        where = [place, *(error.field or "").split(".")] if error.field else [place]
        detail: object = [{"loc": where, "msg": error.message, "type": "value_error"}]
    else:
        # `status` is their older name for `code`; clients compare either.
        detail = {"type": kind, "code": code, "status": code, "message": error.message, "param": error.field}
    return JSONResponse({"detail": detail}, status, advise(error, status))


def _answer(_: Request, error: RelayError) -> Response:
    return answer_error(error)


HANDLERS = make_handlers(_answer, "docs/elevenlabs.md")
