"""The OpenAPI 3.1 document: what FastAPI knows of the routes, put into the shape that they have on the wire."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from relay.api.problems import MEDIA_TYPE, Problem
from relay.api.routes import SCHEME, describe

_ABOUT = """\
Voices and what belongs to them: consents, aliases, usage, deletions with signed receipts; keys, audit and tenants for
those who administer. Speech itself goes over a WebSocket at `/v1/stream` (docs/protocol.md), of which OpenAPI has no
words.

Errors are `application/problem+json` (RFC 9457). Lists are in pages: give `next_cursor` as `cursor`. A request that
makes something takes an `Idempotency-Key`. What can be read has an `ETag`.

The keys of a suspended tenant read, export, delete voices, withdraw consents and revoke keys; all else is refused with
403 `tenant_suspended`.
"""
_KEY = {
    "type": "http",
    "scheme": "bearer",
    "description": "An API key, `tr_...`. The scopes named with an operation are alternatives: one of them is needed.",
}
_VALIDATION = ("HTTPValidationError", "ValidationError")


def make_document(app: FastAPI) -> dict[str, Any]:
    """The document of an application's routes; the same routes give the same document."""
    document = get_openapi(
        title="Timbrelay", version=version("timbrelay"), description=_ABOUT, routes=app.routes, openapi_version="3.1.0"
    )
    components = document.setdefault("components", {})
    schemas: dict[str, Any] = components.setdefault("schemas", {})
    for name in _VALIDATION:
        schemas.pop(name, None)
    schemas["Problem"] = describe(Problem)
    components["securitySchemes"] = {SCHEME: _KEY}
    components["responses"] = {}
    for operation in _operations(document):
        _name_problems(operation, components["responses"])
        _name_bodies(operation, schemas)
    components["schemas"] = dict(sorted(schemas.items()))
    components["responses"] = dict(sorted(components["responses"].items()))
    return document


def _operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path in document["paths"].values():
        yield from path.values()


def _name_problems(operation: dict[str, Any], named: dict[str, Any]) -> None:
    """Describe every problem once; a 304 has no body at all."""
    for status, response in list(operation["responses"].items()):
        if status == "304":
            operation["responses"][status] = {"description": response["description"]}
        elif MEDIA_TYPE in response.get("content", {}):
            named[f"Problem{status}"] = response
            operation["responses"][status] = {"$ref": f"#/components/responses/Problem{status}"}


def _name_bodies(operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Move the models of bodies, and what they are made of, to where references look for them."""
    for media in operation.get("requestBody", {}).get("content", {}).values():
        schema = dict(media["schema"])
        schemas.update(schema.pop("$defs", {}))
        schemas[schema["title"]] = schema
        media["schema"] = {"$ref": f"#/components/schemas/{schema['title']}"}
