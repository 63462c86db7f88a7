"""Cutting a context's text into sentences while it arrives: each fewer than ten words, with its span.

The cutter reads one character at a time and decides by what it has read, never by how the text was cut into
messages: the same text gives the same sentences, however it arrives, except where a flush is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from relay.speaking.sentence_boundaries import (
    CLOSERS,
    MAX_CHARACTERS,
    MAX_WORDS,
    TIGHT_DASH,
    WIDE_STOPS,
    Edge,
    choose_inner_cut,
    choose_run_cut,
    confirms_cut,
    has_sound,
    judge_edge,
)
from relay.speaking.tags import Tag, TagReader

_LINE_ENDS = frozenset("\n\r\v\f\x85\u2028\u2029")
_STICKS_TO_STOP = CLOSERS | WIDE_STOPS | frozenset(".!?…")
_STICKS_TO_DASH = CLOSERS | frozenset(".!?…,;:—–-0123456789")
_FEWEST_BEFORE_PAUSE = 3
_FEWEST_BEFORE_FIRST_PAUSE = 2

_LINE_MARK = re.compile(r"#{1,6}|[-*+•>]")
_FENCE = re.compile(r"(?:`{3,}|~{3,})[\w+#-]*")
_MARKUP = re.compile(r"`+|~~+|(?<![\d*])\*{2,}|\*{2,}(?![\d*])|__+|(?<![\w*])[*_](?=\S)|(?<=\S)[*_](?![\w*])")


@dataclass(frozen=True, slots=True)
class Written:
    """A word as it was written, markup and all, and its span in code points of the whole text."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Sentence:
    """A piece to speak: its number from 0, its text without markup, its span in code points of the whole text."""

    number: int
    text: str
    start: int
    end: int
    words: tuple[Written, ...] = field(default=(), compare=False)
    """One for each word between two spaces of `text`."""


@dataclass(frozen=True, slots=True)
class _Word:
    start: int
    end: int
    """Tags that stood within the word are in its span, and not in its text."""
    text: str
    glued: bool


class _Tail(Enum):
    """What the unfinished word ends with, where a word can end without white space."""

    PLAIN = auto()
    STOP = auto()
    DASH = auto()


class SentenceCutter:
    """Takes the text of one context piece by piece; keeps only what no sentence has taken yet."""

    def __init__(self) -> None:
        self._position = 0
        self._number = 0
        self._words: list[_Word] = []
        self._edge = Edge.OPEN
        self._line_start = True
        self._ended = False
        self._ready: list[Sentence] = []
        self._word = ""
        self._start = self._word_end = 0
        self._tags = TagReader()
        self._glued = False
        self._tail = _Tail.PLAIN

    def push(self, text: str) -> list[Sentence]:
        """Takes the next piece of text; the sentences that became complete, in order.

        Raises:
            RuntimeError: the text was ended before.
        """
        if self._ended:
            raise RuntimeError("the text of this context has ended; open another context")
        for character in text:
            for piece in self._tags.push(character):
                self._take(piece)
        return self._hand_over()

    def flush(self) -> list[Sentence]:
        """The rest of what was pushed, without waiting for more; what follows starts a new sentence."""
        for piece in self._tags.flush():
            self._take(piece)
        self._end_word()
        self._cut()
        return self._hand_over()

    def end(self) -> list[Sentence]:
        """The last sentences; no text may follow."""
        self._ended = True
        return self.flush()

    def _hand_over(self) -> list[Sentence]:
        ready, self._ready = self._ready, []
        return ready

    def _take(self, piece: str | Tag) -> None:
        if isinstance(piece, Tag):
            if piece.parts_words:
                self._end_word()
            self._position += piece.length
            return
        if piece.isspace():
            self._take_space(piece)
        else:
            self._take_mark(piece)
        self._position += 1

    def _take_space(self, character: str) -> None:
        self._end_word()
        if character in _LINE_ENDS:
            self._cut()
            self._line_start = True

    def _take_mark(self, character: str) -> None:
        self._part_tight(character)
        if not self._word and character.isalnum():
            self._settle_early(character)
        if not self._word and len(self._words) == MAX_WORDS:
            self._cut(choose_run_cut([word.text for word in self._words], character))
        elif self._measure() >= MAX_CHARACTERS:
            self._cut_overlong(character)
        if not self._word:
            self._start = self._position
        self._word += character
        self._word_end = self._position + 1
        if character in WIDE_STOPS:
            self._tail = _Tail.STOP
        elif character == TIGHT_DASH and has_sound(self._word):
            self._tail = _Tail.DASH
        elif character not in CLOSERS:
            self._tail = _Tail.PLAIN

    def _part_tight(self, character: str) -> None:
        """Ends the word before this character if a wide full stop or a dash between clauses lets it."""
        if self._tail is _Tail.STOP and character not in _STICKS_TO_STOP:
            self._end_word()
            self._cut()
        elif self._tail is _Tail.DASH and character not in _STICKS_TO_DASH:
            self._end_word()
            self._glued = True

    def _settle_early(self, character: str) -> None:
        """Answers what the word before asked, where the first character of the next one is answer enough."""
        if self._edge in (Edge.CUT_UNLESS_NUMBER, Edge.CUT_IF_CAPITAL):
            if confirms_cut(self._edge, character):
                self._cut()
            self._edge = Edge.OPEN

    def _measure(self) -> int:
        """Characters of the piece with the unfinished word, had it one space between words."""
        return sum(len(word.text) + 1 for word in self._words) + len(self._word)

    def _cut_overlong(self, character: str) -> None:
        """Makes room for one more character: before the unfinished word or, if that is all there is, in it."""
        if self._words:
            self._cut()
            return
        place = choose_inner_cut(self._word, character)
        whole, start = self._word, self._start
        self._words.append(_Word(start, start + place, whole[:place], glued=False))
        self._cut()
        self._word, self._start = whole[place:], start + place

    def _end_word(self) -> None:
        """Settles what the word before was waiting for, then asks this one's own end."""
        word = _Word(self._start, self._word_end, self._word, self._glued)
        self._word, self._glued, self._tail = "", False, _Tail.PLAIN
        if not word.text:
            return
        if confirms_cut(self._edge, word.text):
            self._cut()
        previous = self._words[-1].text if self._words else ""
        self._words.append(word)
        self._edge = judge_edge(previous, word.text, enough=self._has_enough())
        if self._edge is Edge.CUT:
            self._cut()

    def _has_enough(self) -> bool:
        fewest = _FEWEST_BEFORE_PAUSE if self._number else _FEWEST_BEFORE_FIRST_PAUSE
        return sum(has_sound(word.text) for word in self._words) >= fewest

    def _cut(self, count: int = MAX_WORDS) -> None:
        """Makes a sentence of the first `count` words, unless nothing in them can be spoken."""
        piece, self._words = self._words[:count], self._words[count:]
        if not self._words:
            self._edge = Edge.OPEN
        if not piece:
            return
        spoken = list(_read_words(piece, line_start=self._line_start))
        self._line_start = False
        text = " ".join(said for said, _ in spoken)
        if has_sound(text):
            words = tuple(written for _, written in spoken)
            self._ready.append(Sentence(self._number, text, piece[0].start, piece[-1].end, words))
            self._number += 1


def _read_words(piece: list[_Word], *, line_start: bool) -> Iterator[tuple[str, Written]]:
    """Each word that is left without the marks of markdown, as it is said and as it was written; nothing of a line
    that only fences code."""
    words = [word for number, word in enumerate(piece) if not (line_start and _opens_line(piece, number))]
    for written in _join_glued(words):
        # A mark of markdown is known by what stands beside it within its word.
        if said := _MARKUP.sub("", written.text):
            yield said, written


def _join_glued(words: list[_Word]) -> Iterator[Written]:
    joined: Written | None = None
    for word in words:
        if joined is not None and word.glued:
            joined = Written(joined.text + word.text, joined.start, word.end)
            continue
        if joined is not None:
            yield joined
        joined = Written(word.text, word.start, word.end)
    if joined is not None:
        yield joined


def _opens_line(piece: list[_Word], number: int) -> bool:
    if len(piece) == 1 and _FENCE.fullmatch(piece[0].text):
        return True
    return all(_LINE_MARK.fullmatch(word.text) for word in piece[: number + 1])
