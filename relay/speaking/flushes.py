"""The flushes of a context: which of them are still to be answered. Plain bookkeeping."""

from __future__ import annotations

from collections.abc import Iterator

from relay.errors import TextTooLong

MAX_FLUSHES = 10_000


class Flushes:
    """Numbered from 0; each is answered when the sentences that were there before it are spoken."""

    def __init__(self) -> None:
        self._behind: list[int] = []
        """How many sentences each comes behind; kept for a client that comes back and may have missed the answer."""
        self._next = 0

    def add(self, sentences: int) -> None:
        """One more, behind so many sentences; raises TextTooLong when there were enough."""
        if len(self._behind) >= MAX_FLUSHES:
            raise TextTooLong(MAX_FLUSHES, "context", of="flushes", field="type")
        self._behind.append(sentences)

    def answer(self, spoken: int) -> Iterator[int]:
        """The numbers of those that are to be answered now that so many sentences are spoken, each once."""
        while self._next < len(self._behind) and self._behind[self._next] <= spoken:
            yield self._next
            self._next += 1

    def rewind(self, sentence: int, chunk: int) -> None:
        """The client has nothing that came after this chunk: answer again what it may have missed."""
        missed = sentence + (chunk >= 0)
        self._next = next((number for number, behind in enumerate(self._behind) if behind >= missed), self._next)
