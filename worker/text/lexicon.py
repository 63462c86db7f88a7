"""The user lexicon: words and how they are said, one a line.

    # brand names; what follows a # is a comment
    Timbrelay<TAB>T IH1 M B R AH0 L EY2
    GIF<TAB>/ʤˈɪf/
    Nguyen<TAB>win

The pronunciation is one of three: ARPAbet as in the CMU dictionary, with a stress digit at each vowel; symbols of the
International Phonetic Alphabet, of which the common spellings are understood; or a respelling in ordinary words, which
is read as English. A word is matched in its case first, then in any; its possessive comes with it.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from worker.errors import LexiconError
from worker.text.pronunciation import Reader, add_stress, make_possessive, parse_reading

MOST_ENTRIES = 20_000
MOST_BYTES = 2_000_000
LONGEST_WORD = 60
LONGEST_READING = 200

_OPENING, _CLOSING = "\"'([{<“‘«", "\"')]}>”’».,;:!?…"
_INNER = re.compile(r"[-–—/]+")


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Words and their phonemes in our alphabet.

    `exact` and `folded` hold numbers of `readings`: a word has an even one, its possessive the next.
    """

    exact: Mapping[str, int]
    folded: Mapping[str, int]
    readings: tuple[str, ...]

    @classmethod
    def none(cls) -> Self:
        """A lexicon without words."""
        return cls({}, {}, ())

    @classmethod
    def load(cls, path: Path, read: Reader) -> Self:
        """The lexicon of a file; `read` says the phonemes of ordinary words.

        Raises LexiconError with the file, the line, the reason and the fix.
        """
        entries: dict[str, str] = {}
        for number, line in enumerate(_read_lines(path), start=1):
            try:
                entry = parse_line(line, read)
            except ValueError as problem:
                raise LexiconError(path, number, str(problem)) from problem
            if entry is not None:
                if entry[0] in entries:
                    raise LexiconError(path, number, f"{entry[0]!r} is there already; leave one of its lines")
                entries[entry[0]] = entry[1]
            if len(entries) > MOST_ENTRIES:
                raise LexiconError(path, number, f"there are over {MOST_ENTRIES} words; leave some out")
        return cls.of(entries)

    @classmethod
    def of(cls, entries: Mapping[str, str]) -> Self:
        """A lexicon of words with phonemes."""
        exact = {word: 2 * place for place, word in enumerate(entries)}
        folded: dict[str, int] = {}
        for word, place in exact.items():
            folded.setdefault(word.casefold(), place)
        readings = tuple(said for phonemes in entries.values() for said in (phonemes, make_possessive(phonemes)))
        return cls(exact, folded, readings)

    def mark(self, text: str, sign: Callable[[int], str]) -> str:
        """The text with each word that the lexicon knows replaced by the sign of its reading."""
        if not self.exact:
            return text
        return re.sub(r"\S+", lambda found: self._mark_chunk(found[0], sign), text)

    def _mark_chunk(self, chunk: str, sign: Callable[[int], str]) -> str:
        """What stands between two spaces: as it is, or without the signs around it, or the parts of a compound."""
        core, first = chunk.lstrip(_OPENING), 0
        first = len(chunk) - len(core)
        for candidate in (chunk, core, core.rstrip(_CLOSING)):
            place = self._find(candidate)
            if place is not None:
                begin = chunk.index(candidate) if candidate else first
                return chunk[:begin] + sign(place) + chunk[begin + len(candidate) :]
        if not _INNER.search(chunk):
            return chunk
        parts = re.split(r"([-–—/]+)", chunk)
        return "".join(part if place % 2 else self._mark_part(part, sign) for place, part in enumerate(parts))

    def _mark_part(self, part: str, sign: Callable[[int], str]) -> str:
        core = part.lstrip(_OPENING)
        first = len(part) - len(core)
        core = core.rstrip(_CLOSING)
        place = self._find(core)
        return part if place is None else part[:first] + sign(place) + part[first + len(core) :]

    def _find(self, word: str) -> int | None:
        for candidate, possessive in _forms(word):
            place = self.exact.get(candidate)
            place = self.folded.get(candidate.casefold()) if place is None else place
            if place is not None:
                return place + possessive
        return None


def _forms(word: str) -> Iterator[tuple[str, int]]:
    yield word, 0
    if word[-2:] in ("'s", "’s", "'S", "’S"):
        yield word[:-2], 1
    elif word[-2:] in ("s'", "s’"):
        yield word[:-1], 0


def _read_lines(path: Path) -> list[str]:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise LexiconError(path, 0, f"it has more than {MOST_BYTES} bytes; is it a lexicon? Leave words out")
        return path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as problem:
        reason = f"it cannot be read ({problem.strerror}); set TIMBRELAY_LEXICON to a file that is there"
        raise LexiconError(path, 0, reason) from problem
    except UnicodeDecodeError as problem:
        raise LexiconError(path, 0, "it is not UTF-8; save it as UTF-8") from problem


def parse_line(line: str, read: Reader) -> tuple[str, str] | None:
    """The word of a line and its phonemes, or None for a comment; raises ValueError with reason and fix."""
    # A word may hold a # (as C# does), so a comment begins a line or follows a space.
    content = re.split(r"(?:^|\s)#", line, maxsplit=1)[0].strip()
    if not content:
        return None
    word, tab, reading = content.partition("\t")
    word, reading = word.strip(), reading.strip()
    if not tab or not reading:
        raise ValueError("there is no tab between a word and its pronunciation; write WORD<TAB>PRONUNCIATION")
    if re.search(r"\s", word) or len(word) > LONGEST_WORD or not any(char.isalnum() for char in word):
        raise ValueError(
            f"{word[:LONGEST_WORD]!r} is not one word of at most {LONGEST_WORD} characters; write one a line"
        )
    if len(reading) > LONGEST_READING:
        raise ValueError(f"the pronunciation has over {LONGEST_READING} characters; shorten it")
    return word, add_stress(parse_reading(reading, read))
