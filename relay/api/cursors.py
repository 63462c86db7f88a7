"""Cursors: where a list goes on. Opaque to clients, and good for the list and the filters that they were made for.

A cursor holds no secret and opens nothing: what it points past is looked for among the caller's own rows. So it is
checked, not signed, and every relay reads what another has made.
"""

from __future__ import annotations

import base64
import hashlib
import re
import struct
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from relay.errors import InvalidRequest

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = datetime(9999, 12, 31, tzinfo=UTC)
_PLACE = struct.Struct(">8sQ16s")
_WORD = re.compile(rb"[!-~]{1,64}")
_COUNT = struct.Struct(">8sQ")

Place = tuple[datetime, UUID]
"""The time and the id of the last row that was given."""


def write_place(kind: str, place: Place | None) -> str | None:
    """The cursor that goes on after `place`; None at the end of the list. `kind` names the list and its filters."""
    if place is None:
        return None
    at, row = place
    return _write(_PLACE.pack(_mark(kind), (at - _EPOCH) // timedelta(microseconds=1), row.bytes))


def read_place(kind: str, cursor: str) -> Place | None:
    """The place that a cursor of this list names, None for the empty one; raises InvalidRequest."""
    if not cursor:
        return None
    _, microseconds, row = _read(_PLACE, kind, cursor)
    if microseconds > (_LAST - _EPOCH) // timedelta(microseconds=1):
        raise _refusal()
    return _EPOCH + timedelta(microseconds=microseconds), UUID(bytes=row)


def write_count(kind: str, count: int | None) -> str | None:
    """The cursor that goes on after the row with this number; None at the end of the list."""
    return None if count is None else _write(_COUNT.pack(_mark(kind), count))


def read_count(kind: str, cursor: str) -> int:
    """The number that a cursor of this list names, 0 for the empty one; raises InvalidRequest."""
    if not cursor:
        return 0
    _, count = _read(_COUNT, kind, cursor)
    if count >= 1 << 63:
        raise _refusal()
    return int(count)


def write_word(kind: str, word: str | None) -> str | None:
    """The cursor that goes on after a word, in a list that is in the order of its words."""
    return None if word is None else _write(_mark(kind) + word.encode())


def read_word(kind: str, cursor: str) -> str:
    """The word that a cursor of this list names, "" for the empty one; raises InvalidRequest."""
    if not cursor:
        return ""
    content = _decode(cursor)
    if content[:8] != _mark(kind) or not _WORD.fullmatch(content[8:]):
        raise _refusal()
    return content[8:].decode()


def _mark(kind: str) -> bytes:
    return hashlib.sha256(kind.encode("utf-8", "backslashreplace")).digest()[:8]


def _write(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _read(layout: struct.Struct, kind: str, cursor: str) -> tuple[Any, ...]:
    try:
        fields = layout.unpack(_decode(cursor))
    except struct.error as error:
        raise _refusal() from error
    if fields[0] != _mark(kind):
        raise _refusal()
    return fields


def _decode(cursor: str) -> bytes:
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except ValueError as error:
        raise _refusal() from error


def _refusal() -> InvalidRequest:
    return InvalidRequest(
        "`cursor` is not one that this list gave with these filters; begin without it", field="cursor"
    )
