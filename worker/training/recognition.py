"""Word error rate: what a recogniser understands against what was asked for, numbers spelled out on both sides."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

_ONES = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
    *("ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("zero", "ten", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
_SAME = {"ok": "okay", "mr": "mister", "mrs": "missus", "dr": "doctor", "st": "saint", "vs": "versus"}
_MONEY = re.compile(r"\$(\d+)(?:\.(\d\d))?")
_NUMBER = re.compile(r"(\d+)(st|nd|rd|th)?")


def spell_number(value: int) -> str:
    """English words for a whole number below a million, without "and"."""
    if value < 20:
        return _ONES[value]
    if value < 100:
        return _TENS[value // 10] + (f" {_ONES[value % 10]}" if value % 10 else "")
    size, name = (100, "hundred") if value < 1000 else (1000, "thousand")
    rest = f" {spell_number(value % size)}" if value % size else ""
    return f"{spell_number(value // size)} {name}{rest}"


def _spell_match(match: re.Match[str]) -> str:
    digits, ending = match.groups()
    value = int(digits)
    if value >= 1_000_000:
        return " ".join(_ONES[int(digit)] for digit in digits)
    if len(digits) == 4 and (1100 <= value < 2000 or 2010 <= value < 2100) and value % 100 >= 10:
        words = f"{spell_number(value // 100)} {spell_number(value % 100)}"
    else:
        words = spell_number(value)
    return f" {_ordinal(words) if ending else words} "


def _ordinal(words: str) -> str:
    *head, last = words.split()
    last = _ORDINALS[last] if last in _ORDINALS else last[:-1] + "ieth" if last.endswith("y") else f"{last}th"
    return " ".join([*head, last])


def normalize_words(text: str) -> list[str]:
    """Lower-case words without punctuation, numbers spelled out, so that two spellings of one reading agree."""
    plain = text.lower().replace("’", "'").replace("%", " percent")
    plain = re.sub(r"(?<=\d),(?=\d{3})", "", plain)
    plain = _MONEY.sub(lambda m: f"{m[1]} dollars" + (f" and {int(m[2])} cents" if m[2] else ""), plain)
    plain = _NUMBER.sub(_spell_match, re.sub(r"(?<=\d)[:.](?=\d)", " ", plain))
    words = re.sub(r"[^a-z' ]", " ", plain).replace("'", "").split()
    return [_SAME.get(word, word) for word in words]


def count_errors(wanted: Sequence[str], found: Sequence[str]) -> int:
    """Substitutions, insertions and deletions (Levenshtein distance over words)."""
    row = list(range(len(found) + 1))
    for number, word in enumerate(wanted, 1):
        before, row[0] = row[:], number
        for place, other in enumerate(found, 1):
            row[place] = min(before[place] + 1, row[place - 1] + 1, before[place - 1] + (word != other))
    return row[-1]


class Recogniser(Protocol):
    """Anything that writes down speech."""

    def transcribe(self, samples: Array) -> str:
        """The words of mono float32[N] at 16 kHz."""


class WhisperRecogniser:
    """A CTranslate2 Whisper model from a folder, through `faster-whisper` (the `asr` extra)."""

    def __init__(self, model: Path, threads: int = 1) -> None:
        from faster_whisper import WhisperModel

        self._model = WhisperModel(str(model), device="cpu", compute_type="int8", cpu_threads=threads)

    def transcribe(self, samples: Array) -> str:
        """The words of mono float32[N] at 16 kHz."""
        segments, _ = self._model.transcribe(samples, language="en", beam_size=5, condition_on_previous_text=False)
        return " ".join(segment.text.strip() for segment in segments)
