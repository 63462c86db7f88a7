"""Answers: a body, its entity tag, and nothing where the client has it already."""

from __future__ import annotations

from http import HTTPStatus

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from relay.api.entity_tags import check_match, matches_weakly, tag_of

JSON = "application/json"
_NOT_KEPT = {"Cache-Control": "no-store"}


def show(request: Request, body: BaseModel) -> Response:
    """200 with what was asked for, or 304 (RFC 9110, section 13.1.2)."""
    content = _render(body)
    headers = {"ETag": tag_of(content), "Cache-Control": "private, no-cache", "Vary": "Authorization"}
    condition = request.headers.get("if-none-match")
    if condition is not None and matches_weakly(condition, headers["ETag"]):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(content, media_type=JSON, headers=headers)


def tell(body: BaseModel, status: int = HTTPStatus.OK, *, location: str = "", tagged: bool = False) -> Response:
    """What has come of a change; `tagged` where the body is what a GET of the same thing would show."""
    content = _render(body)
    headers = dict(_NOT_KEPT)
    if location:
        headers["Location"] = location
    if tagged:
        headers["ETag"] = tag_of(content)
    return Response(content, status_code=status, media_type=JSON, headers=headers)


def nothing() -> Response:
    """204: done, and nothing to say of it."""
    return Response(status_code=HTTPStatus.NO_CONTENT)


def check_current(request: Request, body: BaseModel) -> None:
    """Raises RequestRefused (412) unless `If-Match`, where there is one, names the representation as it is."""
    check_match(request.headers.get("if-match"), tag_of(_render(body)))


def _render(body: BaseModel) -> bytes:
    return body.model_dump_json().encode()
