"""What is said for a text, and which of its words is said where."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from worker.text.characters import fold_characters
from worker.text.markup import silence_markup
from worker.text.normalise import split_text

STRESS = "ˈˌ"
_PAUSES = ';:,.!?—…"()“”ː '


@dataclass(frozen=True, slots=True)
class Said:
    """A spoken word: its phonemes, single spaces between them where it is several, and what it was written as, the
    word of this number among those that stand between white space."""

    phonemes: str
    source: int


@dataclass(frozen=True, slots=True)
class Span:
    """Where a written word sounds: its number, and the places of its first and its last sounding symbol."""

    word: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Reading:
    """The ids of a text between two pads, none when nothing in it can be spoken; the spans of the words that sound, in
    their order, by places in `ids`."""

    ids: tuple[int, ...]
    words: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of folded text, and for each of its words the number of the written one."""

    text: str
    sources: tuple[int, ...]


def fold_words(text: str) -> tuple[list[str], list[int]]:
    """The words of the text in plain characters, and for each the number of the written one it comes from.

    A written word may become several or none.
    """
    plain = silence_markup(text)
    folded = fold_characters(plain)
    if folded is text:
        words = text.split()
        return words, list(range(len(words)))
    words, sources, place = [], [], 0
    for number, written in enumerate(text.split()):
        place = text.index(written, place)
        parts = fold_characters(plain[place : place + len(written)]).split()
        place += len(written)
        words.extend(parts)
        sources.extend([number] * len(parts))
    return words, sources


def cut_pieces(text: str, sources: Sequence[int]) -> Iterator[Piece]:
    """The pieces in which a text with single spaces is read; a word that is cut belongs to two."""
    word, end = 0, 0
    for piece in split_text(text):
        count = len(piece.split())
        yield Piece(piece, tuple(sources[word : word + count]))
        end += len(piece)
        cut = end < len(text) and " " not in (text[end - 1], text[end])
        word += count - cut


def span_words(words: Iterable[Said]) -> tuple[str, tuple[Span, ...]]:
    """The phonemes of spoken words with single spaces between them, and the spans of the written ones; the first symbol
    has the place 1, behind a pad."""
    spoken, spans, place = list[str](), list[Span](), 1
    for said in words:
        phonemes = said.phonemes
        spoken.append(phonemes)
        if phonemes.strip(_PAUSES + STRESS):
            first = place + len(phonemes) - len(phonemes.lstrip(_PAUSES))
            last = place + len(phonemes.rstrip(_PAUSES)) - 1
            if spans and spans[-1].word == said.source:
                first = spans.pop().first
            spans.append(Span(said.source, first, last))
        place += len(phonemes) + 1
    return " ".join(spoken), tuple(spans)
