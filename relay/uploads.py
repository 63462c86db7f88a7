"""Bodies of requests, read into memory alone: a recording must not touch a disk before it is sealed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from relay.errors import InvalidMessage, RecordingTooLarge

MAX_JSON_BYTES = 64 * 1024
MAX_FIELD_BYTES = 4096
UPLOAD_TIMEOUT_S = 60.0
_FORM_OVERHEAD = 64 * 1024

Body = TypeVar("Body", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class EnrolmentForm:
    """What a new voice is made of."""

    name: str
    consent: str
    recording: bytes


async def read_json(request: Request, model: type[Body]) -> Body:
    """Read a JSON body; raises InvalidMessage with the field at fault."""
    raw = b"".join([part async for part in _bounded(request, MAX_JSON_BYTES, InvalidMessage("the body is too large"))])
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = str(problem["loc"][-1]) if problem["loc"] else None
        raise InvalidMessage(f"`{field or 'body'}`: {problem['msg'].lower()}", field=field) from error


async def read_enrolment(request: Request, max_recording_bytes: int) -> EnrolmentForm:
    """Read the multipart form of an enrolment; raises InvalidMessage or RecordingTooLarge."""
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise InvalidMessage("send multipart/form-data with `name`, `consent` and `recording`", field="Content-Type")
    too_large = RecordingTooLarge(max_recording_bytes)
    stream = _bounded(request, max_recording_bytes + _FORM_OVERHEAD, too_large)
    parser = MultiPartParser(request.headers, stream, max_files=1, max_fields=8, max_part_size=MAX_FIELD_BYTES)
    parser.spool_max_size = max_recording_bytes + _FORM_OVERHEAD + 1
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise InvalidMessage(f"the form cannot be read: {error.message}") from error
    fields = {name: form.get(name) for name in ("name", "consent", "recording")}
    upload = fields["recording"]
    if not isinstance(upload, UploadFile):
        raise InvalidMessage("`recording` must be a file: WAV, FLAC, OGG or MP3", field="recording")
    recording = await upload.read()
    if len(recording) > max_recording_bytes:
        raise too_large
    return EnrolmentForm(_text(fields["name"], "name"), _text(fields["consent"], "consent"), recording)


def _text(value: object, field: str) -> str:
    if not isinstance(value, str) or not 1 <= len(value.strip()) <= 200 or not value.strip().isprintable():
        raise InvalidMessage(f"`{field}` must be a text of 1 to 200 printable characters", field=field)
    return value.strip()


async def _bounded(request: Request, limit: int, too_large: Exception) -> AsyncGenerator[bytes, None]:
    """The body in pieces, up to `limit` bytes and UPLOAD_TIMEOUT_S seconds."""
    received = 0
    try:
        async with asyncio.timeout(UPLOAD_TIMEOUT_S):
            async for part in request.stream():
                received += len(part)
                if received > limit:
                    raise too_large
                yield part
    except (TimeoutError, ClientDisconnect) as error:
        raise InvalidMessage("the body did not arrive in time") from error
