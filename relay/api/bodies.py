"""Bodies of requests, read into memory within bounds of size, time and depth (JSON: RFC 8259)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from relay.errors import InvalidRequest, RelayError, RequestRefused

MAX_JSON_BYTES = 64 * 1024
BODY_TIMEOUT_S = 60.0
"""How long a body may take to arrive."""
MAX_DEPTH = 16

Body = TypeVar("Body", bound=BaseModel)


async def read_json(request: Request, model: type[Body]) -> Body:
    """The body as a model; raises InvalidRequest with the field at fault, or RequestRefused (408, 413, 415)."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise unsupported("send the body as `application/json`")
    too_large = RequestRefused(413, "body_too_large", f"a JSON body has at most {MAX_JSON_BYTES // 1024} KiB")
    return parse_model(
        model, parse_json(b"".join([part async for part in receive(request, MAX_JSON_BYTES, too_large)]))
    )


def parse_json(raw: bytes) -> Any:
    """One JSON value without repeated keys, NaN, or more than MAX_DEPTH levels; raises InvalidRequest.

    Of a repeated key one reader sees the first value and another the last (RFC 8259, section 4): nobody gets to choose.
    """
    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"the body is not JSON in UTF-8 ({_describe(error)})") from error
    if _depth(value) > MAX_DEPTH:
        raise InvalidRequest(f"the body is nested more than {MAX_DEPTH} deep")
    return value


def parse_model(model: type[Body], value: object) -> Body:
    """A JSON value as a model; raises InvalidRequest with the field at fault and never what it holds."""
    try:
        return model.model_validate(value, strict=False)
    except ValidationError as error:
        raise invalid(error) from error


def invalid(error: ValidationError) -> InvalidRequest:
    """What a client is told of the first thing that does not fit."""
    problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
    field = ".".join(str(part) for part in problem["loc"])[:100] or None
    # A key of the client's own making may hold anything, half a surrogate pair too.
    field = field if field is None or field.isprintable() else None
    return InvalidRequest(f"`{field or 'body'}`: {problem['msg'].lower()}", field=field)


def unsupported(message: str) -> RequestRefused:
    """The refusal of a body in another format (RFC 9110, section 15.5.16)."""
    return RequestRefused(415, "unsupported_media_type", message, field="Content-Type")


async def receive(request: Request, limit: int, too_large: RelayError) -> AsyncGenerator[bytes, None]:
    """The body in pieces, up to `limit` bytes and BODY_TIMEOUT_S seconds; raises `too_large` or RequestRefused."""
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared) > limit:
        raise too_large
    received = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for part in request.stream():
                received += len(part)
                if received > limit:
                    raise too_large
                yield part
    except (TimeoutError, ClientDisconnect) as error:
        raise RequestRefused(
            408, "request_timeout", f"the body did not arrive within {BODY_TIMEOUT_S:.0f} s"
        ) from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a key twice")
    return found


def _refuse_constant(_: str) -> NoReturn:
    raise ValueError("NaN and infinities are no JSON")


def _depth(value: object) -> int:
    levels, depth = [value], 0
    while levels:
        depth += 1
        nested = [level for level in levels if isinstance(level, dict | list)]
        levels = [inner for level in nested for inner in (level.values() if isinstance(level, dict) else level)]
        if depth > MAX_DEPTH:
            break
    return depth


def _describe(error: Exception) -> str:
    """Where it stops being JSON; Python's own sentence does not quote the text."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg.lower()} at character {error.pos}"
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is no UTF-8"
    return "nested too deep" if isinstance(error, RecursionError) else str(error)
