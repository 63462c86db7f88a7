"""relay.dialects.cartesia.face under whatever clients do, on a real session."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from relay.speaking.sentences import SentenceCutter
from tests.relay.dialects.cartesia.wire import CHUNK, Frame, Wire, audio, sound, words

IDS = st.sampled_from(("a", "b", "c"))
PIECES = st.sampled_from(("Hello there. ", "one two three ", "and so on, ", "Well", " ", "", "🎉 ", "The end. Not yet"))
TERMINAL = ("done", "error")


@dataclass
class Life:
    """A context from its first words until it is over for its client."""

    text: str = ""
    cut: bool = False
    """Whether a flush or a delay may have cut its text elsewhere than the text itself does."""
    ended: bool = False
    over: bool = False
    frames: list[Frame] = field(default_factory=list)


class Conversations(RuleBasedStateMachine):
    """Three ids, used again and again."""

    def __init__(self) -> None:
        super().__init__()
        self.wire = Wire()
        self.lives: dict[str, Life] = {}

    @rule(id=IDS, piece=PIECES, flush=st.booleans(), words=st.booleans())
    def say(self, id: str, piece: str, flush: bool, words: bool) -> None:
        life = self.lives.get(id)
        if life is not None and life.ended:
            return
        if piece.strip() and life is None:
            life = self.lives[id] = Life()
        more: dict[str, Any] = {"add_timestamps": True, "flush": flush}
        self.wire.say(id, piece, **more)
        if life is not None:
            life.text += piece
            life.cut = life.cut or flush

    @rule(id=IDS, last=st.sampled_from(("", " ", "Bye.")))
    def end(self, id: str, last: str) -> None:
        life = self.lives.get(id)
        if life is None or (life.ended and last.strip()):
            return
        self.wire.say(id, last, **{"continue": False, "add_timestamps": True})
        if not life.ended:
            life.text += last
            life.ended = True

    @rule(id=IDS)
    def cancel(self, id: str) -> None:
        self.wire.cancel(id)
        self.lives.pop(id, None)

    @rule(id=IDS)
    def change_the_voice(self, id: str) -> None:
        life = self.lives.get(id)
        if life is None or life.ended:
            return
        self.wire.say(id, "In another voice.", voice="nina", add_timestamps=True)
        life.ended = True
        life.text = ""

    @precondition(lambda self: self.wire.jobs)
    @rule(count=st.integers(1, 3))
    def work(self, count: int) -> None:
        self.wire.work(count)

    @precondition(lambda self: self.wire.jobs)
    @rule()
    def fail(self) -> None:
        self.wire.fail()

    @rule(seconds=st.sampled_from((0.25, 1.5, 4.0)))
    def pass_time(self, seconds: float) -> None:
        self.wire.pass_time(seconds)
        for life in self.lives.values():
            life.cut = True

    @rule(count=st.integers(1, 40))
    def tell(self, count: int) -> None:
        for frame in self.wire.tell(count):
            self.hear(frame)

    def hear(self, frame: Frame) -> None:
        """Every frame is of a context that its client has, and comes before that context's end."""
        id = frame["context_id"]
        assert id in self.lives, f"{frame['type']} of {id}, which was cancelled or has ended"
        life = self.lives[id]
        life.frames.append(frame)
        if frame["type"] not in TERMINAL:
            return
        del self.lives[id]
        if frame["type"] == "done":
            assert life.ended
            self.check_whole(id, life)

    def check_whole(self, id: str, life: Life) -> None:
        """All of its text was heard, and in its own words."""
        heard = audio(life.frames, id)
        if not life.cut:
            cutter = SentenceCutter()
            sentences = [*cutter.push(life.text), *cutter.end()]
            assert heard == b"".join(sound(sentence.text) for sentence in sentences)
        spoken = "".join(word for word, _, _ in words(life.frames, id))
        assert "".join(life.text.split()).replace("🎉", "") == spoken.replace("🎉", "")

    @invariant()
    def times_rise_and_samples_are_whole(self) -> None:
        for id, life in self.lives.items():
            times = [time for _, start, end in words(life.frames, id) for time in (start, end)]
            assert times == sorted(times)
            assert len(audio(life.frames, id)) % (2 * CHUNK) == 0

    @invariant()
    def nothing_is_kept_of_what_is_over(self) -> None:
        face = self.wire.face
        assert {stretch.context.id for stretch in face._stretches.values()} <= set(face._contexts)
        assert set(face._contexts) <= set("abc")

    def teardown(self) -> None:
        """Every context that was ended comes to its end."""
        for frame in self.wire.run():
            self.hear(frame)
        assert not [id for id, life in self.lives.items() if life.ended]
        assert not self.wire.face._answers


TestConversations = Conversations.TestCase
TestConversations.settings = settings(max_examples=150, stateful_step_count=40, deadline=None, derandomize=True)
