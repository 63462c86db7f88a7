"""Answers over HTTP: errors as `{error_code, title, message, request_id}` (Cartesia, "API errors")."""

from __future__ import annotations

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from relay import metrics
from relay.api.answers import JSON
from relay.dialects.answers import advise, make_handlers
from relay.dialects.cartesia.refusals import refuse
from relay.errors import RelayError


class ErrorBody(BaseModel):
    """What went wrong."""

    error_code: str
    title: str
    message: str
    request_id: str


def answer_error(error: RelayError, request: str) -> Response:
    """An error as the answer to a request of this id."""
    metrics.ERRORS.labels(error.code).inc()
    refusal = refuse(error)
    body = ErrorBody(error_code=refusal.error_code, title=refusal.title, message=error.message, request_id=request)
    headers = advise(error, refusal.status)
    return Response(body.model_dump_json(), status_code=refusal.status, media_type=JSON, headers=headers)


def _answer(request: Request, error: RelayError) -> Response:
    return answer_error(error, request.state.request_id)


HANDLERS = make_handlers(_answer, "docs/cartesia.md")
