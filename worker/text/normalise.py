"""Written English brought into words where the dictionary's own reading rules go astray or fall silent.

What those rules read well (cardinals, ordinals, years, times, dates, most units, titles) is left to them.
"""

import re
from collections.abc import Iterator

from worker.text.addresses import read_addresses
from worker.text.letters import read_letters
from worker.text.quantities import read_quantities

LONGEST_PIECE = 400
"""Some of the dictionary's rules take time that grows with the square of a text, so no more of it is read at once."""

MOST_PARTS = 12
"""Parts of a word without a space: letters of one case, a number, a sign."""

_LONG = re.compile(rf"\S{{{MOST_PARTS + 1},}}")
_PART = re.compile(r"\d[\d.,]*|[^\W\d_a-z]*[^\W\d_A-Z]*'?[^\W\d_A-Z]+|[^\W\d_]+|[\W_]")
_STREET_DR = re.compile(r"(?<=[a-z] )Dr\.(?= ?$|[,;:!?]| [a-z])")
_NAME_BEFORE = re.compile(r"(?:[A-Z][a-z]+|\d(?:st|nd|rd|th)) $")
_PAGE = re.compile(r"\bp\. ?(?=\d)")
_WORDS = re.compile(r"(?<![\w.])(?:e\.g\.|i\.e\.|'[Tt]is\b|'[Tt]was\b|['’]em\b)")
_WORDS_SAID = {"e.g.": "for example", "i.e.": "that is", "'tis": "it is", "'twas": "it was", "'em": "them"}
_SHORT_DAYS = r"(?:Mon|Tues?|Wed|Thurs?|Fri|Sat|Sun)"
_DAYS = re.compile(rf"\b{_SHORT_DAYS}\.? ?[-–] ?{_SHORT_DAYS}\b")
_DAY_NAMES = {day[:3]: day for day in ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")}
_ROMAN = re.compile(
    r"(?:(?P<name>\b[A-Z][a-z]+) )?\b(?P<roman>(?=[IVX]{3,7}\b)X{0,3}(?:IX|IV|V?I{0,3}))\b"
    r"(?P<age> (?:century|Century))?"
)
_MAY_BE_ROMAN = re.compile(r"[IVX]{3}")
_ROMAN_LETTERS = {"I": 1, "V": 5, "X": 10}
_COUNTED_WORDS = (
    "Chapter Part Act Scene Section Volume Book Phase Article War Mark Type Level Stage Class Grade Bowl "
    "Apollo Gemini Fantasy Episode Round Rocky Title Appendix Table Figure Version Windows The Group Category"
)
_COUNTED = frozenset(_COUNTED_WORDS.split())


def normalise_piece(piece: str) -> str:
    """One piece in words; its characters are folded already."""
    piece = read_addresses(piece)
    piece = read_quantities(piece)
    piece = read_letters(piece)
    piece = _read_words(piece)
    return _LONG.sub(_untangle, piece)


def _untangle(found: re.Match[str]) -> str:
    """A word of many parts, apart: the dictionary tries every run of parts, so its time grows with their cube."""
    parts = _PART.findall(found[0])
    return found[0] if len(parts) <= MOST_PARTS else " ".join(parts)


def split_text(text: str) -> Iterator[str]:
    """Pieces of at most 400 characters, cut at a space where there is one."""
    place = 0
    while len(text) - place > LONGEST_PIECE:
        space = text.rfind(" ", place + 1, place + LONGEST_PIECE)
        end = space if space > 0 else place + LONGEST_PIECE
        yield text[place:end]
        place = end
    yield text[place:]


def _read_words(piece: str) -> str:
    if "Dr." in piece:
        piece = _STREET_DR.sub(
            lambda found: "Drive" if _NAME_BEFORE.search(piece[: found.start()]) else found[0], piece
        )
    if "." in piece or "'" in piece:
        piece = _PAGE.sub("page ", piece)
        piece = _WORDS.sub(lambda found: _WORDS_SAID.get(found[0].lower(), found[0]), piece)
    if "-" in piece or "–" in piece:
        piece = _DAYS.sub(_say_days, piece)
    return _ROMAN.sub(_say_roman, piece) if _MAY_BE_ROMAN.search(piece) else piece


def _say_days(found: re.Match[str]) -> str:
    first, last = re.split(r"\.? ?[-–] ?", found[0])
    return f"{_DAY_NAMES[first[:3]]} to {_DAY_NAMES[last[:3]]}"


def _say_roman(found: re.Match[str]) -> str:
    """A numeral of three letters or more; shorter ones may be anything, and the dictionary knows what comes before."""
    name, roman, age = found["name"], found["roman"], found["age"] or ""
    if not roman:
        return found[0]
    number = count_roman(roman)
    before = f"{name} " if name else ""
    if age:
        return f"{before}{number}{_ending(number)}{age}"
    return f"{before}{number}" if name is None or name in _COUNTED else f"{before}the {number}{_ending(number)}"


def count_roman(numeral: str) -> int:
    """The number that I, V and X stand for."""
    values = [_ROMAN_LETTERS[letter] for letter in numeral]
    return sum(-one if one < after else one for one, after in zip(values, [*values[1:], 0], strict=True))


def _ending(number: int) -> str:
    return "th" if 10 < number % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
