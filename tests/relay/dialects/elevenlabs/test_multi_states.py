"""Several contexts in whatever order, interrupted, reused and failing: each has one end, and nothing after it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from relay.dialects.elevenlabs.multi_face import MAX_OPEN
from relay.speaking.commands import Open
from tests.relay.dialects.elevenlabs.desk import Desk, open_multi, read_audio, read_text

NAMES = st.sampled_from(["a", "b", "c", "d", None])
TEXTS = st.sampled_from(["Good morning. ", "and then ", "one two three four five six seven. ", "Yes", "😀 "])
BYTES_PER_MS = 48


@dataclass
class Life:
    """One context as its client knows it."""

    name: str | None
    text: str = ""
    flushed: bool = True
    closed: int = 0
    clean: bool = True
    """Whether all of its text should be heard."""
    frames: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        return bool(self.frames) and bool(self.frames[-1].get("isFinal"))


class Contexts(RuleBasedStateMachine):
    """A client that does anything that the dialect allows."""

    def __init__(self) -> None:
        super().__init__()
        self.desk: Desk = open_multi()
        self.lives: list[Life] = []
        self.seen = 0

    def open_life(self, name: str | None) -> Life | None:
        return next((life for life in self.lives if life.name == name and not life.closed), None)

    def sort(self) -> None:
        """Each frame belongs to the oldest life of its name that has not ended."""
        for frame in self.desk.frames[self.seen :]:
            name = frame["contextId"]
            life = next((life for life in self.lives if life.name == name and not life.ended), None)
            assert life is not None, f"a frame of {name} after its end: {frame}"
            life.frames.append(frame)
        self.seen = len(self.desk.frames)

    @precondition(lambda self: self.desk.closed is None)
    @rule(name=NAMES, text=TEXTS, flush=st.booleans())
    def write(self, name: str | None, text: str, flush: bool) -> None:
        life = self.open_life(name)
        if life is None:
            if sum(not life.closed and not life.ended for life in self.lives) >= MAX_OPEN:
                return
            life = Life(name)
            self.lives.append(life)
        life.text += text
        life.flushed = flush
        self.desk.say(text=text, context_id=name, flush=flush)

    @precondition(lambda self: self.desk.closed is None)
    @rule(name=NAMES)
    def flush(self, name: str | None) -> None:
        if (life := self.open_life(name)) is not None:
            life.flushed = True
        self.desk.say(context_id=name, flush=True)

    @precondition(lambda self: self.desk.closed is None)
    @rule(name=NAMES, text=st.sampled_from(["", " "]))
    def keep_alive(self, name: str | None, text: str) -> None:
        if self.open_life(name) is not None or not text:
            self.desk.say(context_id=name, text=text)

    @precondition(lambda self: self.desk.closed is None)
    @rule(name=NAMES)
    def close(self, name: str | None) -> None:
        lives = [life for life in self.lives if life.name == name]
        self.desk.say(context_id=name, close_context=True)
        if lives:
            lives[-1].closed += 1
            lives[-1].clean = lives[-1].clean and lives[-1].flushed and lives[-1].closed == 1

    @precondition(lambda self: self.desk.jobs and self.desk.closed is None)
    @rule()
    def speak(self) -> None:
        self.desk.speak_sentence()

    @precondition(lambda self: self.desk.jobs and self.desk.closed is None)
    @rule()
    def fail(self) -> None:
        before = [life.ended for life in self.lives]
        self.desk.fail()
        self.sort()
        for life, was in zip(self.lives, before, strict=True):
            if life.ended and not was:
                life.clean = False
                life.closed = life.closed or 1

    @rule()
    def wait(self) -> None:
        self.desk.wait(0.25)

    @invariant()
    def every_frame_has_its_place(self) -> None:
        self.sort()
        for life in self.lives:
            ends = [frame for frame in life.frames if frame.get("isFinal")]
            assert len(ends) <= 1
            if any(frame.get("error") for frame in life.frames):
                life.clean = False
                life.closed = life.closed or 1

    @invariant()
    def alignments_fit(self) -> None:
        for life in self.lives:
            clock_ms = 0
            for frame in life.frames:
                if (alignment := frame.get("alignment")) is None:
                    continue
                starts, durations = alignment["charStartTimesMs"], alignment["charDurationsMs"]
                assert len(alignment["chars"]) == len(starts) == len(durations) > 0
                ends = [start + duration for start, duration in zip(starts, durations, strict=True)]
                edges = [edge for pair in zip(starts, ends, strict=True) for edge in pair]
                assert edges == sorted(edges)
                assert edges[0] >= 0
                clock_ms += ends[-1]
            assert clock_ms * BYTES_PER_MS <= len(read_audio(life.frames))

    def teardown(self) -> None:
        """In the end everything has ended, once, and what was to be heard was heard."""
        for name in ("a", "b", "c", "d", None):
            if self.desk.closed is None and (life := self.open_life(name)) is not None:
                life.flushed = True
                self.desk.say(context_id=name, flush=True)
                self.close(name)
        for _ in range(2 * len(self.lives) + 2):
            self.desk.speak()
            self.desk.wait(0.25)
        self.every_frame_has_its_place()
        self.alignments_fit()
        assert len([c for c in self.desk.commands if isinstance(c, Open)]) == len(self.lives)
        if self.desk.closed is None:
            assert not self.desk.harness.session.keys
            assert all(life.ended for life in self.lives)
            for life in self.lives:
                if life.clean and life.closed == 1:
                    # What was flushed in the middle of a word is two words.
                    assert "".join(read_text(life.frames).split()) == "".join(life.text.split())
                    clock_ms = sum(
                        a["charStartTimesMs"][-1] + a["charDurationsMs"][-1]
                        for f in life.frames
                        if (a := f.get("alignment"))
                    )
                    assert clock_ms * BYTES_PER_MS == len(read_audio(life.frames))


Contexts.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestContexts = Contexts.TestCase
