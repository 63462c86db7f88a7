"""What things may be called: names, which people read, and aliases of voices, which stand in place of an id."""

from __future__ import annotations

import re
from uuid import UUID

from storage.errors import InvalidValue

MAX_NAME = 200
ALIAS_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.\-]{0,63}$"
"""No dot at the start: `.` and `..` vanish from the path of a URL."""
_ALIAS = re.compile(ALIAS_PATTERN)
# Not printable by Unicode's letter, but without them Persian and some of India's languages are misspelt.
_JOINERS = str.maketrans("", "", "\u200c\u200d")


def check_name(name: str, field: str = "name") -> str:
    """The name as it was given; raises InvalidValue."""
    if not 1 <= len(name) <= MAX_NAME or not name.translate(_JOINERS).isprintable() or not name.strip():
        raise InvalidValue(field, f"must be 1 to {MAX_NAME} printable characters, and not blank")
    return name


def check_alias(alias: str) -> str:
    """The alias as it was given; raises InvalidValue. None reads like an id, so that a name is one or the other."""
    if not _ALIAS.fullmatch(alias):
        raise InvalidValue("alias", "must be 1 to 64 of A-Z, a-z, 0-9, `_`, `.`, `-`, the last two not first")
    if parse_id(alias) is not None:
        raise InvalidValue("alias", "must not look like the id of a voice")
    return alias


def reads_like_alias(name: str) -> bool:
    """Whether there can be an alias of this name."""
    return _ALIAS.fullmatch(name) is not None


def parse_id(name: str) -> UUID | None:
    """The id that a name is, if it is one."""
    try:
        return UUID(name)
    except ValueError:
        return None
