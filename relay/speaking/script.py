"""The text of a context: what of it has come, the sentences that it was cut into, and which of them goes out next."""

from __future__ import annotations

from relay import metrics
from relay.errors import TextTooLong
from relay.speaking.sentences import Sentence, SentenceCutter

MAX_TEXT = 100_000


class Script:
    """Keeps all sentences to the end, for a client that comes back; times are the clock's `monotonic`."""

    def __init__(self) -> None:
        self._cutter = SentenceCutter()
        self._sentences: list[tuple[Sentence, float]] = []
        self.characters = 0
        """How much text has come, in code points."""
        self.next = 0
        """The number of the sentence that goes out next."""

    @property
    def length(self) -> int:
        """How many sentences there are so far."""
        return len(self._sentences)

    @property
    def waits(self) -> bool:
        """Whether there are sentences that have not gone out."""
        return self.next < len(self._sentences)

    def push(self, text: str, now: float) -> None:
        """More text; raises TextTooLong when there was enough."""
        if self.characters + len(text) > MAX_TEXT:
            raise TextTooLong(MAX_TEXT, "context")
        self.characters += len(text)
        with metrics.TEXT_STAGE.time():
            self._add(self._cutter.push(text), now)

    def flush(self, now: float) -> None:
        """Make a sentence of the rest."""
        self._add(self._cutter.flush(), now)

    def end(self, now: float) -> None:
        """No text follows."""
        self._add(self._cutter.end(), now)

    def take(self) -> tuple[Sentence, float]:
        """The sentence that goes out next, and when it was complete."""
        self.next += 1
        return self._sentences[self.next - 1]

    def find_unspoken(self, heard: int) -> tuple[int, int] | None:
        """The span from the first sentence that was not heard whole to the end of the text."""
        if heard < len(self._sentences):
            return self._sentences[heard][0].start, self.characters
        behind = self._sentences[-1][0].end if self._sentences else 0
        return (behind, self.characters) if behind < self.characters else None

    def _add(self, sentences: list[Sentence], now: float) -> None:
        self._sentences.extend((sentence, now) for sentence in sentences)
