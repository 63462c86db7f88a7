"""A context of Cartesia's, which may fall silent and go on: it is spoken in stretches, each a context of ours.

Cartesia lets a context expire one second after its last audio. Here it then gives its place back and takes another
when its client goes on, so that a turn that waits for a tool loses nothing, and one that nobody ends costs nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import StrEnum

from relay.audio.encoding import Encoder
from relay.dialects.cartesia.styles import Style
from relay.speaking.events import SAMPLE_RATE, Audio
from storage.errors import IllegalTransition

SILENT_S = 1.0
"""How long after its last audio was heard a context gives its place back."""
_UNDER_WAY = 2
"""With so many sentences begun, waiting text waits for them and not for its client."""
_STEP_S = 0.25
"""Pieces that come closer together are remembered as one."""


class State(StrEnum):
    """Where a context is in its life."""

    SPEAKING = "speaking"
    SILENT = "silent"
    ENDING = "ending"
    OVER = "over"


TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.SPEAKING: frozenset({State.SILENT, State.ENDING, State.OVER}),
    State.SILENT: frozenset({State.SPEAKING, State.OVER}),
    State.ENDING: frozenset({State.OVER}),
    State.OVER: frozenset(),
}


class Context:
    """What its client knows by one id, from its first words to its terminal frame."""

    def __init__(self, id: str, style: Style) -> None:
        self.id = id
        self.style = style
        self.state = State.SILENT
        self.stretch: Stretch | None = None
        """The one that speaks; none while it is silent."""
        self.spoke = False
        """Whether anything was heard of the stretches before this one."""
        self.spoken_s = 0.0
        """Their audio."""
        self.flushed = 0
        """How many flushes are answered."""
        self._flushes = 0

    def move(self, wanted: State) -> None:
        """Raises IllegalTransition."""
        if wanted not in TRANSITIONS[self.state]:
            raise IllegalTransition("Cartesia context", self.state, wanted)
        self.state = wanted

    def speak(self, name: str, now: float) -> Stretch:
        """Begin a stretch."""
        self.move(State.SPEAKING)
        self.stretch = Stretch(name, self, now)
        return self.stretch

    def fall_silent(self) -> None:
        """The stretch has said all it had."""
        self.move(State.SILENT)
        self.spoke = self.spoke or (self.stretch is not None and self.stretch.samples > 0)
        self.stretch = None

    def count_flush(self) -> int:
        """The id of another flush; they begin at 1."""
        self._flushes += 1
        return self._flushes


class Stretch:
    """One context of ours: what of its text has not begun to be spoken, and until when it is heard."""

    def __init__(self, name: str, context: Context, now: float) -> None:
        self.name = name
        self.context = context
        self.opened = False
        self.samples = 0
        self.step_ms = 0.0
        """From the chunk before until the newest was ready; of the first, from the sentence's last character."""
        self._encoder: Encoder = context.style.sound.encode(context.style.speed)
        self._length = 0
        self._held: deque[tuple[int, float]] = deque()
        self._under_way = 0
        self._flushes: deque[int | None] = deque()
        self._heard_at = self._ready_at = now

    def take(self, text: str, now: float) -> None:
        """More text."""
        self._length += len(text)
        end = self._length - (len(text) - len(text.rstrip()))
        if not text.strip():
            return
        if self._held and now - self._held[-1][1] < _STEP_S:
            self._held[-1] = (end, self._held[-1][1])
        else:
            self._held.append((end, now))

    def flush(self, flush: int | None) -> None:
        """All its text is to be spoken; `flush` is the client's id for that, where it asked for it."""
        self._held.clear()
        self._flushes.append(flush)

    def is_held_too_long(self, now: float) -> bool:
        """Whether text waits for more text, and has done so for as long as its client wants."""
        if not self.opened or not self._held or self._under_way >= _UNDER_WAY:
            return False
        return now - self._held[0][1] >= self.context.style.buffer_delay_s

    def is_silent(self, now: float) -> bool:
        """Whether everything was heard, some time ago."""
        busy = self._held or self._flushes or self._under_way
        return self.opened and not busy and now - self._heard_at >= SILENT_S

    def begin(self, end: int) -> None:
        """A sentence up to there has gone to be spoken."""
        self._under_way += 1
        while self._held and self._held[0][0] <= end:
            self._held.popleft()

    def end(self) -> None:
        """A sentence is spoken."""
        self._under_way -= 1

    def encode(self, audio: Audio) -> bytes:
        """A chunk in the client's format, as far as it is final."""
        first = self.samples == 0
        self.step_ms = audio.ttfa_ms if first else max(0.0, 1000 * (audio.ready_at - self._ready_at))
        self._ready_at = audio.ready_at
        self.samples += audio.samples
        self._heard_at = max(self._heard_at, audio.ready_at) + audio.samples / SAMPLE_RATE / self.context.style.speed
        return self._encoder.encode(audio.pcm)

    def finish(self) -> bytes:
        """The rest of what was encoded."""
        self.step_ms = 0.0
        return self._encoder.finish()

    def answer_flush(self) -> tuple[bytes, int | None]:
        """The oldest flush is done: what is left of its audio, and its id."""
        rest = self.finish()
        style = self.context.style
        self._encoder = style.sound.encode(style.speed)
        return rest, self._flushes.popleft()

    @property
    def seconds(self) -> float:
        """How long its audio is for its client."""
        return self.samples / SAMPLE_RATE / self.context.style.speed
