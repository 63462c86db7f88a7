"""Forms with a recording, read into memory alone: a recording must not touch a disk before it is sealed."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from pydantic import WithJsonSchema
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from relay.api.bodies import receive, unsupported
from relay.errors import InvalidRequest, RecordingTooLarge, Refused

MAX_UPLOADS = 8
"""How many recordings one relay takes in at once: what they need of its memory."""
MAX_TENANT_UPLOADS = MAX_UPLOADS // 2
MAX_FIELD_BYTES = 16 * 1024
MAX_FIELDS = 16
_FORM_OVERHEAD = 64 * 1024
_BUSY_MS = 2000

Recording = Annotated[
    bytes, WithJsonSchema({"type": "string", "format": "binary", "description": "WAV, FLAC, MP3, OGG, M4A or WebM."})
]
"""A file in a form, for the description of it."""


@dataclass(frozen=True, slots=True)
class Form:
    """The parts of a form: texts by their name, and the recording."""

    fields: Mapping[str, str]
    recording: bytes | None

    def digest(self) -> bytes:
        """SHA-256 over all of it, in whatever order and with whatever boundary it came."""
        whole = hashlib.sha256()
        for part in sorted(f"{name}\0{value}" for name, value in self.fields.items()):
            whole.update(hashlib.sha256(part.encode("utf-8", "surrogatepass")).digest())
        whole.update(hashlib.sha256(self.recording or b"").digest())
        return whole.digest()


class UploadRoom:
    """The places for recordings in a relay's memory, of which one tenant has half at the most.

    A recording may take a minute to arrive: whoever is slow on purpose must not keep everybody else waiting.
    """

    def __init__(self) -> None:
        self._taken: Counter[UUID] = Counter()

    @contextmanager
    def take(self, tenant: UUID) -> Iterator[None]:
        """A place for one more recording; raises Refused when there is none."""
        if self._taken.total() >= MAX_UPLOADS or self._taken[tenant] >= MAX_TENANT_UPLOADS:
            count = self._taken[tenant] if self._taken[tenant] >= MAX_TENANT_UPLOADS else MAX_UPLOADS
            message = f"{count} recordings are being taken already; try again soon"
            raise Refused("overloaded", message, retry_after_ms=_BUSY_MS)
        self._taken[tenant] += 1
        try:
            yield
        finally:
            self._taken[tenant] -= 1
            # Only those who are sending are remembered.
            self._taken = +self._taken


def is_form(request: Request) -> bool:
    """Whether the request says that its body is a form with files (RFC 7578)."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == "multipart/form-data"


async def read_form(request: Request, max_recording_bytes: int, file: str = "recording") -> Form:
    """Read a multipart form with at most one file, the recording, in the field called `file`.

    Raises InvalidRequest, RecordingTooLarge, or RequestRefused for another format or a body that does not arrive.
    """
    if not is_form(request):
        raise unsupported("send the recording in a form, as `multipart/form-data`")
    limit = max_recording_bytes + _FORM_OVERHEAD
    stream = receive(request, limit, RecordingTooLarge(max_recording_bytes, file))
    parser = MultiPartParser(request.headers, stream, max_files=1, max_fields=MAX_FIELDS, max_part_size=MAX_FIELD_BYTES)
    # More than can come: the file that the parser makes never leaves memory.
    parser.spool_max_size = limit + 1
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise InvalidRequest(f"the form cannot be read: {error.message}") from error
    return await _collect(form, max_recording_bytes, file)


async def _collect(form: FormData, max_recording_bytes: int, file: str) -> Form:
    fields: dict[str, str] = {}
    recording: bytes | None = None
    for name, value in form.multi_items():
        if isinstance(value, UploadFile):
            if name != file:
                raise InvalidRequest(f"the file of the form must be called `{file}`", field=file)
            recording = await value.read()
            await value.close()
        elif name in fields:
            raise InvalidRequest("the form has a field twice")
        else:
            fields[name] = value
    if recording is not None and len(recording) > max_recording_bytes:
        raise RecordingTooLarge(max_recording_bytes, file)
    return Form(fields, recording)
