"""When each character is heard, made of when each word is, in tiles that follow one another without loss.

A tile holds whole words with what separates them from the next, and ends where the next tile begins: the sum of all
tiles is the context's audio to the millisecond, however long it is. Clients that keep a clock of their own move it by
the length of each tile, so it must neither drift nor count anything twice. The newest word waits for the one after it
or for the end of its sentence, for only then it is known how far it reaches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from relay.speaking.events import SAMPLE_RATE, Audio, Word

_SPACE = " "


@dataclass(frozen=True, slots=True)
class Tile:
    """Characters and when they are heard: milliseconds within the audio of their context."""

    start_ms: int
    """Where the tile before ended."""
    chars: tuple[str, ...]
    starts_ms: tuple[int, ...]
    ends_ms: tuple[int, ...]

    @property
    def end_ms(self) -> int:
        """Where the next tile begins."""
        return self.ends_ms[-1]


@dataclass(slots=True)
class _Draft:
    clock_ms: int
    chars: list[str] = field(default_factory=list)
    starts_ms: list[int] = field(default_factory=list)
    ends_ms: list[int] = field(default_factory=list)

    def spread(self, text: str, start_ms: int, end_ms: int) -> None:
        """Characters that share a span evenly; white space of any kind is a space, at which clients end a word."""
        start_ms = max(start_ms, self.clock_ms)
        end_ms = max(end_ms, start_ms)
        for number, char in enumerate(text):
            self.chars.append(_SPACE if char.isspace() else char)
            self.starts_ms.append(start_ms + (end_ms - start_ms) * number // len(text))
            self.ends_ms.append(start_ms + (end_ms - start_ms) * (number + 1) // len(text))
        self.clock_ms = end_ms if text else self.clock_ms

    def part(self, text: str, end_ms: int) -> None:
        """What separates two words: the pause is its first character's."""
        if text:
            self.spread(text[0], self.clock_ms, end_ms)
            self.spread(text[1:], end_ms, end_ms)
        elif self.chars:
            self.ends_ms[-1] = self.clock_ms = max(end_ms, self.clock_ms)


class Aligner:
    """The characters of one context. With `closing_space` every sentence ends in a space, also where the text has none:
    some clients count a word as said when they see what follows it."""

    def __init__(self, *, speed: float = 1.0, closing_space: bool = False) -> None:
        self._speed = speed
        self._closing_space = closing_space
        self._text = ""
        self._base = 0
        self._sentences: dict[int, tuple[int, int]] = {}
        self._newest: Word | None = None
        self._clock_ms = 0
        self._paused_ms = 0
        self._owes_space = False

    @property
    def left(self) -> str:
        """The text whose characters are in no tile yet."""
        return self._text

    def push(self, text: str) -> None:
        """The text as it was pushed to the context."""
        self._text += text

    def begin(self, sentence: int, start: int, end: int) -> None:
        """A sentence has this span of the text, in code points."""
        self._sentences[sentence] = (start, end)

    def end(self, sentence: int) -> None:
        """A sentence has ended, maybe without a sound; its text goes with what comes next."""
        self._sentences.pop(sentence, None)

    def pause(self, seconds: float) -> None:
        """So much silence was put in before what comes next."""
        self._paused_ms += round(1000 * seconds)

    def take(self, audio: Audio) -> Tile | None:
        """The characters that are settled by this chunk."""
        draft = _Draft(self._clock_ms)
        words: Sequence[Word] = audio.words
        if audio.last:
            words = self._complete(audio)
        for word in words:
            self._settle(draft, word)
        if audio.last:
            self._close(draft, audio)
        return self._finish(draft)

    def rest(self) -> Tile | None:
        """At the context's end: what no sentence has taken, for it has no sound."""
        draft = _Draft(self._clock_ms)
        if self._text.strip() or not self._closing_space:
            draft.spread(self._text, self._clock_ms, self._clock_ms)
        self._drop(self._base + len(self._text))
        return self._finish(draft)

    def _complete(self, audio: Audio) -> Sequence[Word]:
        """The last words of a sentence; one without any is a single word, so that its text is not lost."""
        span = self._sentences.get(audio.sentence)
        if audio.words or self._newest is not None or span is None:
            return audio.words
        start, end = span
        begun_s = (self._clock_ms - self._paused_ms) * self._speed / 1000
        return (Word(self._slice(start, end), start, end, begun_s, _end_s(audio)),)

    def _settle(self, draft: _Draft, word: Word) -> None:
        """Write the word before this one, which reaches as far as this one; keep this one."""
        if self._newest is not None:
            self._write(draft, self._newest)
            draft.part(self._slice(self._base, word.start), self._ms(word.start_s))
        else:
            lead = self._slice(self._base, word.start)
            # The space that was given before its time is not given twice.
            draft.spread(lead[1:] if self._owes_space and lead[:1].isspace() else lead, draft.clock_ms, draft.clock_ms)
        self._owes_space = False
        self._drop(word.start)
        self._newest = word

    def _close(self, draft: _Draft, audio: Audio) -> None:
        """The end of a sentence: its last word, and a space that lasts as long as the sound does."""
        _, end = self._sentences.pop(audio.sentence, (0, self._base))
        if self._newest is not None:
            self._write(draft, self._newest)
            self._newest = None
        tail = self._slice(self._base, max(end, self._base))
        self._drop(max(end, self._base))
        if self._text[:1].isspace():
            tail += self._text[0]
            self._drop(self._base + 1)
        elif self._closing_space and draft.chars:
            tail += _SPACE
            self._owes_space = True
        draft.part(tail, self._ms(_end_s(audio)))

    def _write(self, draft: _Draft, word: Word) -> None:
        draft.spread(self._slice(word.start, word.end), self._ms(word.start_s), self._ms(word.end_s))
        self._drop(word.end)

    def _finish(self, draft: _Draft) -> Tile | None:
        if not draft.chars:
            return None
        start_ms, self._clock_ms = self._clock_ms, draft.clock_ms
        return Tile(start_ms, tuple(draft.chars), tuple(draft.starts_ms), tuple(draft.ends_ms))

    def _ms(self, seconds: float) -> int:
        return round(1000 * seconds / self._speed) + self._paused_ms

    def _slice(self, start: int, end: int) -> str:
        return self._text[max(start - self._base, 0) : max(end - self._base, 0)]

    def _drop(self, end: int) -> None:
        """What lies before this place has been written."""
        self._text = self._text[max(end - self._base, 0) :]
        self._base = max(end, self._base)


def _end_s(audio: Audio) -> float:
    return audio.start_s + audio.samples / SAMPLE_RATE
