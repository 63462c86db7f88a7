"""Numbers with something around them, where the dictionary's own reading rules go astray.

Each rule is one pattern without nested repetition, so that a text is read in a time that grows with its length.
"""

import re
from collections.abc import Callable

Rule = tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]

_LONGEST_NUMBER = 15
_MONEY = {"$": "dollars", "£": "pounds", "€": "euros", "¥": "yen", "₹": "rupees", "₩": "won"}
_MONEY |= {"USD": "dollars", "EUR": "euros", "GBP": "pounds", "CHF": "francs", "JPY": "yen"}
_DOLLARS = {"US": "U.S.", "C": "Canadian", "CA": "Canadian", "A": "Australian", "AU": "Australian", "NZ": "New Zealand"}
_SQUARED = {"m": "meter", "km": "kilometer", "cm": "centimeter", "mm": "millimeter", "ft": "foot", "mi": "mile"}
_PLURALS = {"foot": "feet"}
_SPEEDS = {
    "m/s": "meters per second",
    "ft/s": "feet per second",
    "l/h": "liters per hour",
    "kg/m": "kilograms per meter",
}
_PARTS = {2: "half", 3: "third", 4: "quarter", 5: "fifth", 6: "sixth", 7: "seventh", 8: "eighth", 9: "ninth"}
_PARTS |= {10: "tenth", 12: "twelfth", 16: "sixteenth", 32: "thirty-second", 64: "sixty-fourth", 100: "hundredth"}
_SMALL = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_NUMBER = r"\d{1,3}(?:,\d{3}){1,4}(?:\.\d{1,4})?|\d{1,15}(?:\.\d{1,4})?"


def _digits(text: str) -> str:
    return " ".join(char for char in text if char.isdecimal())


def _say_phone(found: re.Match[str]) -> str:
    groups = re.findall(r"\d+", found[0])
    return ("plus " if found[0].startswith("+") else "") + ", ".join(_digits(group) for group in groups)


def _say_mixed(found: re.Match[str]) -> str:
    whole, over, under = found[1], int(found[2]), int(found[3])
    if not (0 < over < under and under in _PARTS):
        return found[0]
    part = _PARTS[under]
    if over == 1:
        return f"{whole} and {'an' if part == 'eighth' else 'a'} {part}"
    return f"{whole} and {over} {part}s"


def _say_fraction(found: re.Match[str]) -> str:
    over, under = int(found[1]), int(found[2])
    if (over, under) in ((24, 7), (9, 11), (50, 50)):
        return f"{over} {under}"
    if under not in (12, 16, 32, 64, 100) or not 0 < over < under or (over > 12 and under == 12):
        return found[0]
    # An even number over sixteen is no fraction in lowest terms: rather a date.
    return found[0] if over % 2 == 0 else f"{over} {_PARTS[under]}{'' if over == 1 else 's'}"


def _say_money_after(found: re.Match[str]) -> str:
    words = _MONEY[found[2]]
    return f"{found[1]} {words.removesuffix('s') if found[1] == '1' else words}"


def _say_area(found: re.Match[str]) -> str:
    unit = _SQUARED[found[2]]
    unit = unit if found[1] == "1" else _PLURALS.get(unit, unit + "s")
    return f"{found[1] or ''} {'square' if found[3] == '2' else 'cubic'} {unit}".strip()


def _say_version(found: re.Match[str]) -> str:
    return ("version " if found[1] else "") + " point ".join(_say_part(part) for part in found[2].split("."))


def _say_part(part: str) -> str:
    return part if part[0] != "0" or len(part) == 1 else _digits(part)


def _say_network(found: re.Match[str]) -> str:
    return " dot ".join(_digits(part) for part in found[0].split("."))


def _say_long(found: re.Match[str]) -> str:
    return _digits(found[0])


def _say_feet(found: re.Match[str]) -> str:
    return f"{found[1]} foot {found[2]}"


RULES: tuple[Rule, ...] = (
    (re.compile(rf"(?<![\w.,])\d{{{_LONGEST_NUMBER + 1},}}(?![\w])"), _say_long),
    (re.compile(r"\d{16,}"), _say_long),
    (re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]\w)"), _say_network),
    (re.compile(r"(?<![\w.])([vV]\.? ?)(\d{1,6}(?:\.\d{1,6}){1,5})(?!\w)"), _say_version),
    (re.compile(r"(?<![\w.,/-])()(\d{1,6}(?:\.\d{1,6}){2,5})(?!\w)"), _say_version),
    (re.compile(r"(?<![\w.])\+\d{1,3}[ .-]?(?:\(?\d{1,5}\)?[ .-]?){1,6}\d(?!\w)"), _say_phone),
    (re.compile(r"(?<![\w.+-])(?:1[ .-])?\(\d{3}\) ?\d{3}[ .-]\d{4}(?!\w)"), _say_phone),
    (re.compile(r"(?<![\w.+-])1[.-]\d{3}[.-]\d{3}[.-]\d{4}(?!\w)|(?<![\w.+-])\d{3}[.]\d{3}[.]\d{4}(?!\w)"), _say_phone),
    (re.compile(r"(?<![\w.])(\d{1,2})' ?(\d{1,2})(?:\"|'')"), _say_feet),
    (re.compile(r"(?<![\w./])(\d{1,4})[ -]{1,3}(\d{1,2})/(\d{1,3})(?![\w/])"), _say_mixed),
    (re.compile(r"(?<![\w./$£€-])(\d{1,2})/(\d{1,3})(?![\w/]|\.\d)"), _say_fraction),
    (re.compile(r"(?<![\w$£€])[-](?=[$£€]\d)"), "minus "),
    (
        re.compile(rf"(?<!\w)({'|'.join(sorted(_DOLLARS, key=len, reverse=True))})\$ ?({_NUMBER})(?![\w])"),
        lambda found: f"{found[2]} {_DOLLARS[found[1]]} dollars",
    ),
    (re.compile(r"([$£€])(\d{1,6}) ?[-–] ?[$£€]?(\d{1,6})(?![\w,.]\w|\w)"), r"\2 to \1\3"),
    (re.compile(rf"(?<![\w.,$£€])({_NUMBER}) ?([€£¥₹₩]|(?:USD|EUR|GBP|CHF|JPY)\b)"), _say_money_after),
    (re.compile(rf"\b(CHF|JPY) ?({_NUMBER})(?!\w)"), lambda found: f"{found[2]} {_MONEY[found[1]]}"),
    (re.compile(r"(?<![\w.])(\d{1,2}(?::\d{2})?) ?[-–] ?(?=\d{1,2}:\d{2}(?!\d))"), r"\1 to "),
    (re.compile(r"(?<![\w.])(\d{1,3})%? ?[-–] ?(?=\d{1,3}%)"), r"\1 to "),
    (re.compile(r"(?<!\w)~ ?(?=[$£€]?\d)"), "about "),
    (re.compile(r"(?<![\w.])(\d{3,5}) ?[x×] ?(?=\d{3,5}(?!\w))"), r"\1 by "),
    (re.compile(r"(?<=\d) ?[x×] ?(?=\d)"), " times "),
    (re.compile(rf"(?:(?<![\w.])({_NUMBER}) ?|(?<!\w))({'|'.join(_SQUARED)})\^([23])(?!\w)"), _say_area),
    (
        re.compile(rf"(?<![\w.])({_NUMBER}) ?({'|'.join(_SPEEDS)})(?!\w)"),
        lambda found: f"{found[1]} {_SPEEDS[found[2]]}",
    ),
    (re.compile(r"(?<=[\w)])\^([23])(?!\w)"), lambda found: " squared" if found[1] == "2" else " cubed"),
    (re.compile(r"(?<![\w)])\^(?=\d)"), ""),
    (re.compile(r"(?<![\w.])(\d{1,4}) ?m(?=[ .,;:!?)]|$)"), r"\1 meters"),
    (re.compile(r"(?<![\w.])(\d{1,4}) in\.(?= [a-z]|$)"), r"\1 inches"),
    (re.compile(r"(?<![\w.,:/+-])0\d{1,14}(?![\d:,/%-]|\.\d)"), _say_long),
    (re.compile(r"(?<=\d)°(?![CFKcfk\w])"), " degrees"),
)
"""In the order in which they are applied."""


def read_quantities(text: str) -> str:
    """The text with the rules applied; one without a digit is left alone."""
    if not any(char.isdecimal() for char in text) and "^" not in text:
        return text
    for pattern, words in RULES:
        text = pattern.sub(words, text)
    return text
