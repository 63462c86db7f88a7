"""The language that a client asks for: there is one, and another is refused rather than read as if it were that."""

from __future__ import annotations

from relay.errors import InvalidMessage

LANGUAGE = "en"


def find_base(language: str | None) -> str:
    """The first subtag (BCP 47), in lower case; what is left out is English."""
    return (language or LANGUAGE).replace("_", "-").partition("-")[0].lower()


def check_language(field: str, language: str | None) -> None:
    """Raises InvalidMessage for any other than English, in whatever country."""
    if find_base(language) != LANGUAGE:
        raise InvalidMessage(f"`{field}`: only English (`{LANGUAGE}`) is spoken here", field=field)
