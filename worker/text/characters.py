"""Single characters in the forms that the reading rules know, and those without a sound left out.

Compatibility characters (full-width letters, ligatures) become their plain ones and decimal digits of any script 0-9;
fractions, raised digits and signs become something that the rules for quantities can read; emoji vanish.
"""

import re
import unicodedata
from functools import lru_cache

MARK = "ÿÿ"
"""Begins the made-up words that stand for readings on the way through the dictionaries; no text keeps it."""


_DOUBLED = re.compile(f"{MARK[0]}{{2,}}")
_SIGNS = {
    "№": " number ",
    "℃": "°C",
    "℉": "°F",
    "™": "",
    "®": "",
    "℠": "",
    "…": "…",
    "‘": "'",
    "’": "'",
    "‛": "'",
    "ʼ": "'",
    "′": "'",
    "″": '"',
    "−": "-",
    "‐": "-",
    "‑": "-",
    "‒": "-",
    "\u00ad": "",
    "[": "(",
    "]": ")",
    "{": "(",
    "}": ")",
}
_RAISED = {"⁰": "0", "¹": "1", "²": "2", "³": "3", "⁴": "4", "⁵": "5", "⁶": "6", "⁷": "7", "⁸": "8", "⁹": "9"}
_READ_SIGNS = frozenset("°©§¶¢$£€¥₹₩+<=>~^|×÷±→←")
_SOUNDLESS = frozenset({"So", "Sk", "Cs", "Co", "Cn", "Cf", "Cc"})


def fold_characters(text: str) -> str:
    """The text in plain characters; at most eight for each of its own."""
    if text.isascii() and text.isprintable() and not ("[" in text or "]" in text or "{" in text or "}" in text):
        return text
    folded: list[str] = []
    for char in text:
        if char in _RAISED:
            # A raised number is one exponent, not several.
            folded.append(_RAISED[char] if folded and folded[-1].startswith("^") else "^" + _RAISED[char])
            if len(folded) > 1 and folded[-2].startswith("^"):
                folded[-2:] = [folded[-2] + folded[-1]]
        else:
            folded.append(_fold(char))
    return _DOUBLED.sub(MARK[0], "".join(folded))


@lru_cache(maxsize=4096)
def _fold(char: str) -> str:
    if char in _SIGNS:
        return _SIGNS[char]
    if char.isdecimal():
        return str(unicodedata.decimal(char))
    if unicodedata.decomposition(char).startswith("<fraction>"):
        return " " + unicodedata.normalize("NFKC", char).replace("\u2044", "/") + " "
    kind = unicodedata.category(char)
    if char.isspace() or (kind == "So" and char not in _READ_SIGNS):
        return " "
    if kind in _SOUNDLESS and char not in _READ_SIGNS:
        return ""
    return "".join(part for part in unicodedata.normalize("NFKC", char) if part != "\u2044")
