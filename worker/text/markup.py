"""Tags of HTML and SSML that nobody asked for, made silent; what stands between them is read as ever.

A tag is what the W3C's recommendations for XML and HTML write as one: `<`, a name, attributes with values, `>`, without
a space before the name. So "a < b" stays a comparison. Every repetition has a bound, so that a text is searched in a
time that grows with its length.
"""

import re

_GAP = "\u00ad"
"""A soft hyphen: it has no sound and does not part a word, and vanishes with the folding of characters."""

_ATTRIBUTE = r"\s{1,20}[\w:.-]{1,40}\s{0,20}=\s{0,20}(?:\"[^\"<>]{0,300}\"|'[^'<>]{0,300}'|[^\s\"'<>=]{1,200})"
_TAG = re.compile(
    r"<!--.{0,500}?-->|<[!?][^<>]{1,200}>"
    rf"|</?(?P<name>[A-Za-z][\w:.-]{{0,30}})(?:{_ATTRIBUTE}){{0,12}}\s{{0,20}}/?>",
    re.DOTALL,
)
_INLINE_TAGS = "a abbr b big del em emphasis font i ins mark q small span strong sub sup u"
_WITHIN_WORDS = frozenset(_INLINE_TAGS.split())
"""Tags that may stand within a word; every other one parts words."""

_ENTITY = re.compile("&(amp|lt|gt|quot|apos|#39|nbsp);")
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'", "#39": "'", "nbsp": " "}


def silence_markup(text: str) -> str:
    """The text, as long as before, with blanks where tags were, and characters for their common entities."""
    if "<" in text:
        text = _TAG.sub(_blank, text)
    return _ENTITY.sub(_unescape, text) if "&" in text else text


def _blank(found: re.Match[str]) -> str:
    name = found["name"]
    return (_GAP if name is not None and name.lower() in _WITHIN_WORDS else " ") * len(found[0])


def _unescape(found: re.Match[str]) -> str:
    return _ENTITIES[found[1]].ljust(len(found[0]), _GAP)
