"""Tags of HTML and SSML in a text that comes in pieces: held back until they are whole, and left out.

Nobody asked for them, and cut apart they would be read aloud. A tag is what the W3C's recommendations for XML and HTML
write as one: `<`, a name, attributes with values, `>`, without a space before the name; so "a < b" and "<3" are text.
What turns out to be none is given back as soon as that is clear; every repetition has a bound.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_LENGTH = 300
"""Characters of the longest tag; what goes on for longer is text."""

_NAME = r"[A-Za-z][\w:.-]{0,30}"
_ATTRIBUTE = r"\s{1,20}[\w:.-]{1,40}\s{0,20}=\s{0,20}(?:\"[^\"<>]*\"|'[^'<>]*'|[^\s\"'<>=]+)"
_TAG = re.compile(rf"<!--.*-->|<[!?](?!--)[^<>]+>|</?(?P<name>{_NAME})(?:{_ATTRIBUTE}){{0,12}}\s{{0,20}}/?>", re.DOTALL)
_UNFINISHED = r"\s{1,20}(?:[\w:.-]{1,40}\s{0,20}(?:=\s{0,20}(?:\"[^\"<>]*\"?|'[^'<>]*'?|[^\s\"'<>=]*))?)?"
_BEGINNING = re.compile(
    rf"<(?:!(?:-(?:-.*)?)?|[!?](?!--)[^<>]*|/?(?:{_NAME}(?:{_ATTRIBUTE}){{0,12}}(?:{_UNFINISHED})?\s{{0,20}}/?)?)",
    re.DOTALL,
)
_INLINE_TAGS = "a abbr b big del em emphasis font i ins mark q small span strong sub sup u"
_WITHIN_WORDS = frozenset(_INLINE_TAGS.split())
"""Tags that may stand within a word; every other one parts words."""


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag that was left out."""

    length: int
    parts_words: bool


class TagReader:
    """Takes a text character by character; gives back characters, and where tags were."""

    def __init__(self) -> None:
        self._held = ""

    def push(self, character: str) -> Iterator[str | Tag]:
        """What is clear by now."""
        if not self._held and character != "<":
            yield character
            return
        if character == "<" and not self._held.startswith("<!--"):
            yield from self.flush()
        self._held += character
        found = _TAG.fullmatch(self._held) if character == ">" else None
        if found is not None:
            tag = Tag(len(self._held), parts_words=(found["name"] or "").lower() not in _WITHIN_WORDS)
            self._held = ""
            yield tag
        elif len(self._held) >= MAX_LENGTH or _BEGINNING.fullmatch(self._held) is None:
            yield from self.flush()

    def flush(self) -> Iterator[str]:
        """What is held back, since nothing more is waited for."""
        held, self._held = self._held, ""
        yield from held
