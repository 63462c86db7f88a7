"""What a context has spoken, counted as it goes; of its text only a keyed hash is kept."""

from __future__ import annotations

from typing import Protocol

from relay.speaking.context_state import Address
from relay.speaking.outputs import Note


class TextHash(Protocol):
    """A keyed hash of a text, fed as the text comes; as Python's own."""

    def update(self, content: bytes, /) -> None:
        """Some more of the text, in UTF-8."""

    def hexdigest(self) -> str:
        """The hash of what there was so far."""


class Tally:
    """Sentences, characters and samples that were played; plain bookkeeping."""

    def __init__(self, text_hash: TextHash) -> None:
        self._text_hash = text_hash
        self._sentences = 0
        self._characters = 0
        self._last = -1
        self.samples = 0

    def read(self, text: str) -> None:
        """More text was taken."""
        self._text_hash.update(text.encode())

    def play(self, sentence: int, text: str, samples: int) -> None:
        """A chunk of a sentence goes to the client; one that is spoken again is not counted again."""
        if sentence > self._last:
            self._last = sentence
            self._sentences += 1
            self._characters += len(text)
        self.samples += samples

    def skip(self, samples: int) -> None:
        """A chunk is passed over that was counted before."""
        self.samples += samples

    def note(self, address: Address) -> list[Note]:
        """What is to be put on record; nothing of a context that nobody has heard."""
        if not self.samples:
            return []
        note = Note(
            context=address.number,
            key=address.key,
            voice=address.voice,
            version=address.version,
            sentences=self._sentences,
            characters=self._characters,
            samples=self.samples,
            text_hmac=self._text_hash.hexdigest(),
        )
        return [note]
