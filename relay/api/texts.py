"""The texts that clients may give, each with its bounds; what they refuse never reaches a repository."""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime, timedelta
from typing import Annotated
from uuid import UUID

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, StringConstraints

from relay.errors import UnknownObject
from storage.errors import InvalidValue
from storage.names import MAX_NAME, check_alias, check_name

LANGUAGE_PATTERN = r"^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8}){0,7}$"
VERSION_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.:\-]{0,63}$"
MAX_LINES = 4000
MAX_YEARS = 100
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)")
_BARRED = frozenset({"Cc", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Controls, halves of surrogate pairs, and what Unicode has given to nobody (general categories)."""
_LINE_BREAKS = {ord(character): " " for character in "\n\r\t"}


class Asked(BaseModel):
    """What clients send: nothing that is not known, so that a misspelt name is not a forgotten one."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _check_name(text: str) -> str:
    try:
        return check_name(unicodedata.normalize("NFC", text))
    except InvalidValue as error:
        raise ValueError(error.rule) from error


def _check_lines(text: str) -> str:
    if any(unicodedata.category(character) in _BARRED for character in text.translate(_LINE_BREAKS)):
        raise ValueError("must be printable characters and white space")
    return unicodedata.normalize("NFC", text)


def _check_time(value: object) -> object:
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        raise ValueError("must be a time with its zone, like 2027-01-31T12:00:00Z (RFC 3339)")
    return value


def _check_ahead(at: datetime) -> datetime:
    now = datetime.now(UTC)
    if not now < at < now + timedelta(days=365 * MAX_YEARS):
        raise ValueError(f"must lie ahead, by no more than {MAX_YEARS} years")
    return at


Name = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_NAME, strip_whitespace=True), AfterValidator(_check_name)
]
"""What somebody or something is called."""
Lines = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_LINES, strip_whitespace=True), AfterValidator(_check_lines)
]
"""A text that may have several lines."""
Language = Annotated[str, StringConstraints(pattern=LANGUAGE_PATTERN)]
"""A language tag (BCP 47)."""
StatementVersion = Annotated[str, StringConstraints(pattern=VERSION_PATTERN)]
"""Which wording somebody agreed to."""
Moment = Annotated[AwareDatetime, BeforeValidator(_check_time)]
"""A time with its zone."""
Ahead = Annotated[AwareDatetime, BeforeValidator(_check_time), AfterValidator(_check_ahead)]
"""A time that is still to come."""


def parse_id(kind: str, text: str) -> UUID:
    """An id of ours; anything else is the id of nothing: raises UnknownObject."""
    if not _ID.fullmatch(text.lower()):
        raise UnknownObject(kind, text)
    return UUID(text)


def is_alias(text: str) -> bool:
    """Whether a text can be an alias."""
    try:
        check_alias(text)
    except InvalidValue:
        return False
    return True
