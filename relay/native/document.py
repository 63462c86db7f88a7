"""The AsyncAPI 3.0 document of the native protocol, made of the models that read and write its messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from relay.api.answers import JSON
from relay.api.entity_tags import tag_of
from relay.native.answers import (
    CancelledAnswer,
    DoneAnswer,
    DrainingAnswer,
    ErrorAnswer,
    FlushedAnswer,
    HelloAnswer,
    OpenedAnswer,
    SentenceAnswer,
    SentenceEndAnswer,
    WordsAnswer,
)
from relay.native.frames import HEADER
from relay.native.messages import CLIENT_MESSAGES, MAX_MESSAGE_BYTES
from relay.native.stream_door import KEY_PREFIX, SUBPROTOCOL

ANSWERS = (
    HelloAnswer,
    OpenedAnswer,
    SentenceAnswer,
    WordsAnswer,
    SentenceEndAnswer,
    FlushedAnswer,
    DoneAnswer,
    CancelledAnswer,
    ErrorAnswer,
    DrainingAnswer,
)
FRAME = "frame"
_ADDRESS = "/v1/stream"
_CHANNEL = "#/channels/stream"
_SCHEMA = "#/components/schemas/{model}"
_ABOUT = """\
Speech over a WebSocket: text in, audio and timings out, several contexts a connection. docs/protocol.md explains it;
voices, consents and keys are the business of the HTTP API (docs/openapi.json).
"""
_FRAME = f"""\
A header of {HEADER.size} bytes, big-endian: version (1 byte), flags (1), milliseconds from the sentence's last
character or, with mel frames, their number (2), number of the context (4), of the sentence (4), of the chunk (4). Then
audio in the context's format or, with flag 0x02, mel frames (float16 little-endian, 80 numbers a frame). Flag 0x01: the
last chunk of its sentence; 0x04: the rest of the encoded audio.
"""
_SECURITY = {
    "key": {"type": "http", "scheme": "bearer", "description": "An API key with the scope `speak`."},
    "subprotocol": {
        "type": "httpApiKey",
        "name": "Sec-WebSocket-Protocol",
        "in": "header",
        "description": f"For browsers: `{SUBPROTOCOL}, {KEY_PREFIX}KEY`, with a key that expires soon.",
    },
}


def make_document() -> dict[str, Any]:
    """The document; the same models give the same document."""
    received, sent = _name_all(CLIENT_MESSAGES), _name_all(ANSWERS)
    schemas = {**_describe(CLIENT_MESSAGES, "validation"), **_describe(ANSWERS, "serialization")}
    messages = {name: _make_message(name, model) for name, model in {**received, **sent}.items()}
    messages[FRAME] = {
        "name": FRAME,
        "title": "A chunk of audio, or mel frames",
        "contentType": "application/octet-stream",
        "payload": {"type": "string", "format": "binary", "minLength": HEADER.size, "description": _FRAME},
    }
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "Timbrelay", "version": version("timbrelay"), "description": _ABOUT},
        "defaultContentType": "application/json",
        "servers": {"relay": _describe_server()},
        "channels": {"stream": _describe_channel(messages)},
        "operations": {
            "hear": _make_operation("receive", "What clients say", received),
            "tell": _make_operation("send", "What the relay says", [*sent, FRAME]),
        },
        "components": {"messages": messages, "schemas": dict(sorted(schemas.items())), "securitySchemes": _SECURITY},
    }


def document_route() -> Route:
    """The document, for whoever asks the relay itself."""
    content = json.dumps(make_document()).encode()
    headers = {"ETag": tag_of(content), "Cache-Control": "no-cache"}

    async def read_document(_: Request) -> Response:
        return Response(content, media_type=JSON, headers=headers)

    return Route("/v1/asyncapi.json", read_document, methods=["GET"])


def _describe_server() -> dict[str, Any]:
    security = [{"$ref": f"#/components/securitySchemes/{name}"} for name in _SECURITY]
    return {
        "host": "{host}",
        "protocol": "wss",
        "description": f"A text message has at most {MAX_MESSAGE_BYTES} bytes.",
        "variables": {"host": {"default": "localhost:8080", "description": "Where a relay listens."}},
        "security": security,
    }


def _describe_channel(messages: Iterable[str]) -> dict[str, Any]:
    return {
        "address": _ADDRESS,
        "description": f"Text messages are JSON; the subprotocol `{SUBPROTOCOL}` is selected where it is offered.",
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
        "bindings": {"ws": {"method": "GET", "bindingVersion": "0.1.0"}},
    }


def _make_operation(action: str, summary: str, messages: Iterable[str]) -> dict[str, Any]:
    refs = [{"$ref": f"{_CHANNEL}/messages/{name}"} for name in messages]
    return {"action": action, "channel": {"$ref": _CHANNEL}, "summary": summary, "messages": refs}


def _make_message(name: str, model: type[BaseModel]) -> dict[str, Any]:
    summary = re.sub(r"\s+", " ", model.__doc__ or "")
    payload = {"$ref": _SCHEMA.format(model=model.__name__)}
    return {"name": name, "summary": summary, "contentType": "application/json", "payload": payload}


def _name_all(models: Iterable[type[BaseModel]]) -> dict[str, type[BaseModel]]:
    """By their `type`, which no two have in common, whichever side says it."""
    return {str(model.model_fields["type"].annotation.__args__[0]): model for model in models}  # type: ignore[union-attr]


def _describe(models: Iterable[type[BaseModel]], mode: JsonSchemaMode) -> dict[str, Any]:
    _, schema = models_json_schema([(model, mode) for model in models], ref_template=_SCHEMA)
    return dict(schema["$defs"])
