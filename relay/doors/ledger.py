"""What is put on record of a connection's contexts: what was spoken, without what was taken back before it was sent."""

from __future__ import annotations

from relay.clock import Clock
from relay.entrance.visitors import Visitor
from relay.speaking.events import SAMPLE_RATE
from relay.speaking.outputs import Note
from relay.speaking.speech_notes import SpeechNotes
from storage.streams.speech_log import Spoken


class Ledger:
    """One a connection."""

    def __init__(self, visitor: Visitor, notes: SpeechNotes, clock: Clock) -> None:
        self._visitor = visitor
        self._notes = notes
        self._clock = clock
        self._unheard: dict[int, int] = {}

    def leave_out(self, context: int, samples: int) -> None:
        """So much of the context of this number was taken back."""
        if samples:
            self._unheard[context] = samples

    def note(self, note: Note) -> None:
        """A context has ended."""
        visitor = self._visitor
        samples = max(0, note.samples - self._unheard.pop(note.context, 0))
        spoken = Spoken(
            tenant=visitor.tenant,
            voice=note.voice,
            version=note.version,
            key_id=visitor.key_id,
            origin=visitor.origin,
            context=note.key,
            sentences=note.sentences,
            characters=note.characters,
            audio_ms=1000 * samples // SAMPLE_RATE,
            text_hmac=note.text_hmac,
            at_ms=self._clock.unix_ms(),
        )
        self._notes.put(spoken)
