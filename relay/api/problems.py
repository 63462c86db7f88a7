"""Errors as `application/problem+json` (RFC 9457): one table of what there is, one shape for all of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from http import HTTPStatus

import structlog
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from relay import metrics
from relay.doors.http_audio import BrokenTransfer
from relay.errors import InvalidRequest, RelayError, RequestRefused, RequestUnderWay, ServiceUnavailable, UnknownObject
from storage.errors import (
    IdempotencyBusy,
    IdempotencyConflict,
    IllegalTransition,
    InvalidValue,
    NameTaken,
    ServerUnavailable,
    StaleRevision,
)

log = structlog.get_logger()

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_MS = 2000
TITLES: Mapping[str, str] = {
    "unauthorized": "No key that opens anything",
    "insufficient_scope": "The key may not do this",
    "tenant_suspended": "The tenant is suspended",
    "not_found": "Nothing at this address",
    "unknown_voice": "No such voice",
    "unknown_consent": "No such consent",
    "unknown_alias": "No such alias",
    "unknown_deletion": "No such deletion",
    "unknown_key": "No such key",
    "unknown_tenant": "No such tenant",
    "unknown_session": "No such session",
    "unknown_problem": "No such problem",
    "method_not_allowed": "Not for this method",
    "request_timeout": "The body did not arrive in time",
    "consent_inactive": "The consent permits nothing any more",
    "wrong_state": "Not in this state",
    "name_taken": "The name is in use",
    "request_under_way": "The first request with this idempotency key is under way",
    "not_confirmed": "The confirmation is missing",
    "gone": "What was made is deleted",
    "precondition_failed": "Changed meanwhile",
    "precondition_required": "The condition is missing",
    "body_too_large": "The body is too large",
    "recording_too_large": "The recording is too large",
    "unsupported_media_type": "Not in this format",
    "invalid_request": "The request cannot be read",
    "idempotency_key_reused": "The idempotency key belongs to another request",
    "rate_limited": "Too many requests",
    "quota_exceeded": "The quota is used up",
    "overloaded": "No room at the moment",
    "too_many_contexts": "No further context for you",
    "internal": "A fault of ours",
    "unavailable": "Not available right now",
}
"""Every code that an HTTP answer may carry, and its title."""


class Problem(BaseModel):
    """What went wrong (RFC 9457, with members of our own)."""

    type: str = Field(description="Where the code is described; the same for every occurrence.")
    title: str
    status: int
    detail: str = Field(description="What went wrong this time, and what to do.")
    code: str = Field(description="The word to compare with.")
    field: str | None = Field(description="The part of the request that is at fault, where one is.")
    retryable: bool = Field(description="Whether the same request may succeed later.")
    retry_after_ms: int | None = Field(default=None, description="When it may be worth trying again.")


def answer_problem(error: RelayError, headers: Mapping[str, str] | None = None) -> Response:
    """An error as the answer to a request."""
    metrics.ERRORS.labels(error.code).inc()
    problem = Problem(
        type=f"/v1/problems/{error.code}",
        title=TITLES.get(error.code, HTTPStatus(error.status).phrase),
        status=error.status,
        detail=error.message,
        code=error.code,
        field=error.field,
        retryable=error.retryable,
        retry_after_ms=error.retry_after_ms,
    )
    content = problem.model_dump_json(exclude={"retry_after_ms"} if error.retry_after_ms is None else None)
    merged = {"Cache-Control": "no-store", **_headers(error), **(headers or {})}
    return Response(content, status_code=error.status, media_type=MEDIA_TYPE, headers=merged)


def _headers(error: RelayError) -> dict[str, str]:
    """What RFC 6750 (section 3) and RFC 9110 (section 10.2.3) want beside the body."""
    if error.status == HTTPStatus.UNAUTHORIZED:
        return {"WWW-Authenticate": "Bearer"}
    if error.code == "insufficient_scope":
        return {"WWW-Authenticate": 'Bearer error="insufficient_scope"'}
    if error.status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        return {"Retry-After": str(math.ceil((error.retry_after_ms or RETRY_AFTER_MS) / 1000))}
    return {}


async def handle_relay_error(_: Request, error: Exception) -> Response:
    """Our own errors say themselves what they are."""
    return answer_problem(error if isinstance(error, RelayError) else RelayError("a fault of ours"))


async def handle_unavailable(_: Request, error: Exception) -> Response:
    """A server behind the relay is away; which one is for the log."""
    log.warning("a request had to be refused", reason=str(error))
    return answer_problem(ServiceUnavailable())


async def handle_invalid(_: Request, error: Exception) -> Response:
    """A parameter that FastAPI could not read; its sentence names the field and not the value."""
    if not isinstance(error, RequestValidationError):
        return answer_problem(RelayError("a fault of ours"))
    problem = error.errors()[0]
    field = str(problem["loc"][-1]) if problem["loc"] else None
    return answer_problem(InvalidRequest(f"`{field}`: {str(problem['msg']).lower()}", field=field))


async def handle_http_error(request: Request, error: Exception) -> Response:
    """What the router refuses: no such path, or no such method there."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    path = request.url.path[:100]
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = _methods_at(request)
        text = f"{request.method} is not for {path!r}, but {', '.join(allowed)}"
        return answer_problem(RequestRefused(405, "method_not_allowed", text), {"Allow": ", ".join(allowed)})
    if status == HTTPStatus.NOT_FOUND:
        text = f"there is nothing at {path!r}; /v1/openapi.json has every path"
        return answer_problem(RequestRefused(404, "not_found", text))
    return answer_problem(InvalidRequest("the request cannot be read"))


async def handle_fault(_: Request, error: Exception) -> Response:
    """Whatever nobody expected: the log has it, the client has a sentence. A transfer that broke is in the log."""
    if not isinstance(error, BrokenTransfer):
        log.error("a request broke", exc_info=error)
    return answer_problem(RelayError("a fault of ours; try again, and tell us if it stays"))


def find_title(code: str) -> str:
    """The title of a code; raises UnknownObject."""
    if code not in TITLES:
        raise UnknownObject("problem", code)
    return TITLES[code]


async def handle_refusal(_: Request, error: Exception) -> Response:
    """What a repository would not do: a state, a name, a value, an idempotency key that does not allow it."""
    return answer_problem(translate(error))


HANDLERS = {
    RelayError: handle_relay_error,
    ServerUnavailable: handle_unavailable,
    **dict.fromkeys(
        (IllegalTransition, StaleRevision, InvalidValue, NameTaken, IdempotencyConflict, IdempotencyBusy),
        handle_refusal,
    ),
    RequestValidationError: handle_invalid,
    HTTPException: handle_http_error,
    Exception: handle_fault,
}


def translate(error: Exception) -> RelayError:
    """What a client is told of an error of the storage room."""
    match error:
        case ServerUnavailable():
            return ServiceUnavailable()
        case IllegalTransition(current="nothing"):
            # It was there when it was looked for, and went meanwhile.
            return RequestRefused(404, f"unknown_{error.machine.rpartition(' ')[2]}", "it is not there any more")
        case IllegalTransition():
            return RequestRefused(409, "wrong_state", str(error))
        case StaleRevision():
            return RequestRefused(412, "precondition_failed", str(error), field="If-Match")
        case InvalidValue():
            return InvalidRequest(str(error), field=error.field)
        case NameTaken():
            return RequestRefused(409, "name_taken", str(error), field="name")
        case IdempotencyConflict():
            return RequestRefused(422, "idempotency_key_reused", str(error), field="Idempotency-Key")
        case IdempotencyBusy():
            return RequestUnderWay(str(error))
    return RelayError("a fault of ours")


def _methods_at(request: Request) -> list[str]:
    """Every method of the path: several routes may share it, and the router names those of the first alone."""
    found: set[str] = set()
    for route in request.app.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            found |= getattr(route, "methods", None) or set()
    return sorted(found | ({"HEAD"} if "GET" in found else set()))
