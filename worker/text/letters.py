"""Letters that are said by their names: the letter A, formulas, initials joined by signs.

The dictionaries take a lone "A" for the article wherever the tagger does; the name of the letter is put in its place by
a mark that they cannot misread.
"""

import re

from worker.text.characters import MARK

LETTER_A = MARK + MARK[0]
"""Stands for the name of the letter A on the way through the dictionaries."""

_BEFORE_LETTER = (
    "letters?|grades?|plans?|vitamins?|types?|groups?|sections?|options?|parts?|class|points?|teams?|appendix|exhibit|"
    "figure|table|room|gate|block|building|column|row|answer|question|hepatitis|level|category|series|step|side|model|"
    "version|variable|blood type|influenza|note|key of"
)
_A_AFTER_KEYWORD = re.compile(rf"(?i:\b(?:{_BEFORE_LETTER}) )A\b(?!['’]|-?[a-z])")
_A_IN_LIST = re.compile(
    r"\bA(?= ?[,/+&] ?[A-Z]\b|(?:,? (?:and|or|to|vs\.?|versus)) [B-Z]\b(?!['’.])|(?: [B-HJ-Z])+\b(?![\w'’]))"
    r"|(?<=\b[B-Z], )A\b|(?<=\b[B-Z] (?:or|to) )A\b|(?<=\b[B-Z] and )A\b(?! [a-z])|(?<=[B-Z]/)A\b"
)
_A_INITIAL = re.compile(r"\bA\.(?= [A-Z])|\bA(?=-[a-z\d])|\bA(?=\d)")
_A_ALONE = re.compile(r"^\W*A\W*$")
_A_WITHIN = re.compile(r"(?<=[a-z\d,] )A\b(?=[ ]?[,.;:!?)\"]|$| (?:is|was|are|were|to|and|or|in|on|for|has|the)\b)")

_SHARP = re.compile(r"\b([A-G])#(?!\w)")
_JOINED = re.compile(r"\b([A-Z]{1,3})&([A-Z]{1,3})\b")
_LETTER_DIGIT = re.compile(r"[A-Za-z]\d")
_LETTERS_DIGITS = re.compile(r"\b([A-Z]{2,3})(\d{1,2})\b(?![.,]\d)")
_FORMULA = re.compile(r"\b(?=\w*\d)(?:(?:He|Li|Na|Mg|Al|Si|Cl|Ca|Fe|Cu|Zn|Ag|Au|[HCNOFPSKI])\d{0,2}){2,6}\b")
_ELEMENT = re.compile(r"[A-Z]|[a-z]|\d+")
_WORDS_OF_COMMERCE = frozenset({"C2C", "P2P", "N2N"})
_ROCK_N_ROLL = re.compile(r"(?<=\w )'?[nN]'(?= \w)|(?<=\w )'[nN](?= \w)")


def spell_letters(word: str) -> str:
    """The letters of a word, one by one, as their names."""
    return " ".join(LETTER_A if letter in "aA" else letter.upper() for letter in word)


def read_letters(text: str) -> str:
    """The text with formulas and joined initials spelled, and every letter A that is no article marked."""
    if "#" in text:
        text = _SHARP.sub(lambda found: f"{found[1]} sharp", text)
    if "&" in text:
        text = _JOINED.sub(lambda found: f"{spell_letters(found[1])} and {spell_letters(found[2])}", text)
    if "'" in text:
        text = _ROCK_N_ROLL.sub("and", text)
    if _LETTER_DIGIT.search(text):
        text = _FORMULA.sub(_say_formula, text)
        text = _LETTERS_DIGITS.sub(lambda found: f"{spell_letters(found[1])} {found[2]}", text)
    return _mark_letter_a(text) if "A" in text else text


def _say_formula(found: re.Match[str]) -> str:
    formula = found[0]
    if formula in _WORDS_OF_COMMERCE:
        return formula
    parts = _ELEMENT.findall(formula)
    return " ".join(part if part.isdecimal() else spell_letters(part) for part in parts)


def _mark_letter_a(text: str) -> str:
    text = _A_AFTER_KEYWORD.sub(lambda found: found[0][:-1] + LETTER_A, text)
    text = _A_INITIAL.sub(LETTER_A + " ", text)
    text = _A_IN_LIST.sub(LETTER_A, text)
    if not text.isupper():
        text = _A_WITHIN.sub(LETTER_A, text)
    return _A_ALONE.sub(lambda found: found[0].replace("A", LETTER_A), text)
