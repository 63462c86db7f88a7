"""Bodies in JSON, within the bounds that our own API has."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel
from starlette.requests import Request

from relay.api.bodies import MAX_JSON_BYTES, parse_json, receive
from relay.dialects.cartesia.styles import read_strictly
from relay.errors import RequestRefused

Model = TypeVar("Model", bound=BaseModel)


async def read_body(request: Request, model: type[Model]) -> Model:
    """The body as a model, whatever its Content-Type; an empty one is an empty object.

    Raises InvalidRequest or InvalidMessage with the field at fault, or RequestRefused (408, 413).
    """
    too_large = RequestRefused(413, "body_too_large", f"a JSON body has at most {MAX_JSON_BYTES // 1024} KiB")
    raw = b"".join([part async for part in receive(request, MAX_JSON_BYTES, too_large)])
    return read_strictly(model, parse_json(raw or b"{}"))
