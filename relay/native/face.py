"""The native protocol, sans-I/O (docs/protocol.md)."""

from __future__ import annotations

import json
from collections.abc import Sequence

from relay.doors.face import Close, Frame
from relay.errors import InvalidMessage
from relay.native.frames import encode_frame
from relay.native.messages import read_message
from relay.speaking.commands import Command
from relay.speaking.events import (
    SAMPLE_RATE,
    Audio,
    Cancelled,
    Done,
    Draining,
    Event,
    Failed,
    Flushed,
    Opened,
    SentenceBegun,
    SentenceEnded,
    Word,
)

PROTOCOL = 1


class NativeFace:
    """Needs no memory: every message says all that there is to know."""

    def __init__(self, chunk_ms: int) -> None:
        self._chunk_samples = SAMPLE_RATE * chunk_ms // 1000

    def greet(self) -> Sequence[Frame]:
        """What audio there will be."""
        hello = {"type": "hello", "protocol": PROTOCOL, "sample_rate": SAMPLE_RATE, "encoding": "pcm_s16le"}
        return [json.dumps({**hello, "channels": 1, "chunk_samples": self._chunk_samples})]

    def hear(self, raw: Frame, _now: float) -> Sequence[Command]:
        """Raises InvalidMessage or TextTooLong for what cannot be read."""
        if isinstance(raw, bytes):
            raise InvalidMessage("clients send JSON text, no binary frames")
        return [read_message(raw)]

    def tell(self, event: Event) -> Sequence[Frame | Close]:
        """Audio as a binary frame, its words before it, everything else as JSON."""
        if not isinstance(event, Audio):
            return [json.dumps(spell(event))]
        frame = encode_frame(event)
        if not event.words:
            return [frame]
        words = {"type": "words", "context": event.context, "sentence": event.sentence}
        return [json.dumps({**words, "words": [spell_word(word) for word in event.words]}), frame]

    def tick(self, _now: float) -> Sequence[Command | Close]:
        """It has no times of its own."""
        return []


def spell_word(word: Word) -> dict[str, object]:
    """A word as it is told; times in milliseconds of the context's audio."""
    times = {"start_ms": round(1000 * word.start_s), "end_ms": round(1000 * word.end_s)}
    return {"text": word.text, "start": word.start, "end": word.end, **times}


def spell(event: Event) -> dict[str, object]:
    """Any event but audio as a JSON object."""
    match event:
        case Opened():
            voice: dict[str, object] = {"voice": str(event.voice), "version": event.version, "resume": event.resume}
            return {"type": "opened", "context": event.context, "number": event.number, **voice}
        case SentenceBegun():
            span = {"sentence": event.sentence, "start": event.start, "end": event.end}
            return {"type": "sentence", "context": event.context, **span}
        case SentenceEnded():
            return {
                "type": "sentence_end",
                "context": event.context,
                "sentence": event.sentence,
                "chunks": event.chunks,
                "samples": event.samples,
                "first_audio_ms": event.first_audio_ms,
                "overhead_ms": event.overhead_ms,
                "total_ms": event.total_ms,
            }
        case Flushed():
            return {"type": "flushed", "context": event.context, "flush": event.flush}
        case Done():
            return {"type": "done", "context": event.context, "sentences": event.sentences, "samples": event.samples}
        case Cancelled():
            return {"type": "cancelled", "context": event.context}
        case Failed():
            unspoken = None if event.unspoken is None else {"start": event.unspoken[0], "end": event.unspoken[1]}
            context = event.context if event.ended else None
            return {"type": "error", **event.error.as_dict(), "context": context, "unspoken": unspoken}
        case Draining():
            return {"type": "draining", "within_ms": round(1000 * event.within_s)}
        case Audio():
            raise TypeError("audio goes in binary frames")
