"""What a route says of itself beside its path: who may come in, what it takes, and how it may refuse.

FastAPI describes parameters and answers; bodies are read by us (they have bounds, and a recording must not touch a
disk), so they are described here.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, Header, Path, Query
from pydantic import BaseModel

from relay.api.problems import MEDIA_TYPE
from relay.api.visits import Door
from relay.entrance.rate_limits import Rate
from storage.names import ALIAS_PATTERN
from storage.tenancy.api_keys import Deed, Scope

SCHEME = "key"
SCHEMAS = "#/components/schemas/"
_ALWAYS = (401, 403, 422, 429, 500, 503)
_WITH_BODY = (408, 413, 415)

IdInPath = Annotated[str, Path(max_length=256, description="An id, as this API gave it.")]
AliasInPath = Annotated[str, Path(max_length=256, description=f"An alias: `{ALIAS_PATTERN}`.")]
Limit = Annotated[int, Query(ge=1, le=100, description="The most items in the answer.")]
Cursor = Annotated[str, Query(max_length=128, description="`next_cursor` of the answer before this one.")]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[!-~]+$",
        description="A text of your choice, best a UUID: the same request with the same key is done once.",
    ),
]
IfMatch = Annotated[
    str | None, Header(alias="If-Match", description="The `ETag` that you have read; 412 if it is another by now.")
]
IfNoneMatch = Annotated[
    str | None, Header(alias="If-None-Match", description="The `ETag` that you have; 304 if it is still the same.")
]


def door(
    *scopes: Scope,
    refuses: tuple[int, ...] = (),
    body: type[BaseModel] | None = None,
    form: type[BaseModel] | None = None,
    rate: Rate = Rate.REQUEST,
    deed: Deed | None = None,
) -> dict[str, Any]:
    """The arguments of a route that takes a key with one of the scopes.

    `body` is what comes as JSON and `form` what comes as a multipart form; `refuses` names the statuses beside those
    that every such route has; `deed` what it does, where its method does not tell.
    """
    takes = {"application/json": body, "multipart/form-data": form}
    content = {media: {"schema": describe(model)} for media, model in takes.items() if model is not None}
    extra: dict[str, Any] = {"security": [{SCHEME: [scope]} for scope in scopes]}
    if content:
        extra["requestBody"] = {"required": True, "content": content}
    statuses = sorted({*_ALWAYS, *refuses, *(_WITH_BODY if content else ())})
    return {
        "dependencies": [Depends(Door(frozenset(scopes), rate, deed))],
        "openapi_extra": extra,
        "responses": refusals(*statuses),
    }


def open_door(*refuses: int) -> dict[str, Any]:
    """The arguments of a route that takes no key."""
    return {"openapi_extra": {"security": []}, "responses": refusals(422, 500, *refuses)}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """How OpenAPI describes answers that are problems."""
    content = {MEDIA_TYPE: {"schema": {"$ref": f"{SCHEMAS}Problem"}}}
    return {status: {"description": HTTPStatus(status).phrase, "content": content} for status in statuses}


def describe(model: type[BaseModel]) -> Mapping[str, Any]:
    """A model as a JSON schema whose references point into an OpenAPI document; `$defs` is for that to move."""
    return model.model_json_schema(ref_template=SCHEMAS + "{model}")


def or_accepted(model: type[BaseModel], arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a route that answers 200 when all is done, and 202 with the same body when it is not."""
    accepted: dict[int | str, dict[str, Any]] = {202: {"model": model, "description": "Some of it is still to do."}}
    return {**arguments, "response_model": model, "responses": {**accepted, **arguments["responses"]}}


def with_answer(arguments: dict[str, Any], status: int, media: str) -> dict[str, Any]:
    """The arguments of a route whose answer is no JSON."""
    content = {media: {"schema": {"type": "string", "format": "binary"}}}
    described = {status: {"description": HTTPStatus(status).phrase, "content": content}}
    return {**arguments, "responses": {**described, **arguments["responses"]}}
