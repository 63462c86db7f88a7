"""Who is heard next: contexts take turns on the one track of a peer, each at 48 kHz in frames of 20 ms."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import soxr

from relay.speaking.events import SAMPLE_RATE, Audio
from relay.webrtc.pacing import FRAME_SAMPLES

TRACK_RATE = 48_000
FRAME_BYTES = 2 * FRAME_SAMPLES
CAPACITY_BYTES = 20 * TRACK_RATE * 2
"""20 s; what is beyond waits in the outbox, where it can be taken back as well."""
PATIENCE_FRAMES = 50
"""How long a context that has run dry, and has not ended, keeps others waiting."""
_UP = TRACK_RATE // SAMPLE_RATE


@dataclass(frozen=True, slots=True)
class Playing:
    """From this frame on a context is heard, from so many seconds of its audio on."""

    context: str
    number: int
    at_s: float


@dataclass(frozen=True, slots=True)
class Played:
    """All of a context has been heard."""

    context: str
    number: int


@dataclass(frozen=True, slots=True)
class Turn:
    """20 ms: what is heard, None for silence, and what begins and has ended to be heard."""

    pcm: bytes | None
    notes: tuple[Playing | Played, ...] = ()


@dataclass(slots=True)
class _Line:
    """What one context has to say, and how much of it was said."""

    context: str
    number: int
    sound: bytearray = field(default_factory=bytearray)
    resampler: soxr.ResampleStream | None = None
    given: int = 0
    """Samples at 24 kHz."""
    taken: int = 0
    """Samples at 48 kHz."""
    complete: bool = False
    """Whether the last sentence has come to its end, so that the rest of it need not wait for more."""
    ended: bool = False
    dry: int = 0
    """For how many frames there has been nothing."""

    def add(self, audio: Audio) -> None:
        if self.resampler is None:
            self.resampler = soxr.ResampleStream(SAMPLE_RATE, TRACK_RATE, 1, dtype="int16", quality="HQ")
        samples = np.frombuffer(audio.pcm, "<i2")
        self.sound += self.resampler.resample_chunk(samples, last=audio.last).astype("<i2").tobytes()
        self.given += audio.samples
        self.complete = audio.last
        if audio.last:
            # What the filter holds back belongs to this sentence and must not wait for the next.
            self.resampler = None

    def speaks(self) -> bool:
        return len(self.sound) >= FRAME_BYTES or (self.complete and len(self.sound) > 0)

    def take(self) -> bytes:
        frame = bytes(self.sound[:FRAME_BYTES])
        del self.sound[:FRAME_BYTES]
        self.taken += len(frame) // 2
        return frame.ljust(FRAME_BYTES, b"\0")

    def unheard(self) -> int:
        return max(0, self.given - self.taken // _UP)


class Floor:
    """Keeps what is to be heard; `take` is called once for every 20 ms."""

    def __init__(self) -> None:
        self._lines: dict[int, _Line] = {}
        self._holder: _Line | None = None
        self._size = 0

    @property
    def full(self) -> bool:
        """Whether no more should be added for now."""
        return self._size >= CAPACITY_BYTES

    @property
    def empty(self) -> bool:
        """Whether nothing is left to be heard."""
        return self._size == 0

    def add(self, audio: Audio) -> None:
        """A chunk, behind those of its context."""
        line = self._lines.setdefault(audio.number, _Line(audio.context, audio.number))
        before = len(line.sound)
        line.add(audio)
        self._size += len(line.sound) - before

    def end(self, context: str) -> None:
        """No more is added for this context; what is there is heard."""
        for line in self._lines.values():
            if line.context == context:
                line.ended = line.complete = True

    def forget(self, number: int) -> int:
        """Drop what was not heard of a context; returns how many samples at 24 kHz that is."""
        line = self._lines.pop(number, None)
        if line is None:
            return 0
        self._size -= len(line.sound)
        if self._holder is line:
            self._holder = None
        return line.unheard()

    def take(self) -> Turn:
        """The next 20 ms."""
        notes: list[Playing | Played] = [*self._sweep()]
        line = self._choose()
        if line is None:
            return Turn(None, tuple(notes))
        if not line.speaks():
            line.dry += 1
            return Turn(None, tuple(notes))
        if line.dry > 0 or line.taken == 0:
            notes.append(Playing(line.context, line.number, line.taken / TRACK_RATE))
        line.dry = 0
        before = len(line.sound)
        frame = line.take()
        self._size -= before - len(line.sound)
        return Turn(frame, tuple(notes))

    def _choose(self) -> _Line | None:
        """The context that has the floor keeps it until it has ended, or has been silent for too long."""
        holder = self._holder
        if holder is not None and (holder.speaks() or holder.dry < PATIENCE_FRAMES):
            return holder
        waiting = (line for _, line in sorted(self._lines.items()) if line.speaks())
        self._holder = next(waiting, holder)
        return self._holder

    def _sweep(self) -> list[Played]:
        over = [line for line in self._lines.values() if line.ended and not line.sound]
        for line in over:
            del self._lines[line.number]
            if self._holder is line:
                self._holder = None
        return [Played(line.context, line.number) for line in over]
