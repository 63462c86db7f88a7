"""The core under any order of events: what clients say, what workers send, lose and repeat, time, and lost lines."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from uuid import UUID, uuid4

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from relay.entrance.admission import Admission, Bounds
from relay.errors import InvalidMessage, RelayError
from relay.speaking.commands import Cancel, End, Flush, Open, Resume, Text
from relay.speaking.context import MAX_UNDER_WAY
from relay.speaking.events import Audio, Opened
from relay.speaking.session import MAX_CONTEXTS
from storage.streams.presence import WorkerLoad
from storage.streams.wire import Failure, Job
from tests.relay.conftest import IDLE_S, TENANT, TIMEOUT_S, FakeClock
from tests.relay.speaking.world import ROOM, UNSPEAKABLE, VOICES, Line, Story, make_role, speak

PIECES = (
    "Well then, ",
    "my dear friend, ",
    "One sentence here. ",
    "Then comes *another* one! ",
    "**Bold** words—glued by a dash—go on. ",
    "- a list\n",
    "# Title\n",
    "naïve 😄 text. ",
    f"{UNSPEAKABLE}好。 ",
    "half a wor",
    "d and more. ",
    "   ",
    "🎉🎉",
    "$5 at 3:30 p.m. ",
    "a b c d e f g h i j k l m n o p q r s t u v w x y z ",
    "",
)
NUMBERS = st.integers(0, 1000)


class CoreMachine(RuleBasedStateMachine):
    """Two connections at first; each story is checked by its client at every event that it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.admission = Admission("relay", self.clock, Bounds(max_contexts=24, max_tenant_contexts=20, max_queue=100))
        self.beat()
        self.lines: list[Line] = [self.connect(), self.connect()]
        self.stories: list[Story] = []
        self.whose: dict[str, Story] = {}
        self.jobs: list[tuple[Line, Job]] = []

    def connect(self) -> Line:
        return Line(self.admission, self.clock, TENANT, "relay")

    def beat(self) -> None:
        self.admission.observe({"w": WorkerLoad(20, 0, 0.0)}, {}, self.admission.demand(), 0)

    def collect(self) -> None:
        """The jobs that were asked for, and whose contexts they are of."""
        for line in self.lines:
            for name, held in line.session._contexts.items():
                key = held.context.address.key
                self.whose[key] = self.whose.get(key) or next(s for s in self.stories if s.id == name)
            self.jobs += [(line, job) for job in line.jobs]
            line.jobs.clear()

    def alive(self) -> list[Line]:
        return [line for line in self.lines if not line.lost]

    def pick(self, number: int) -> tuple[Line, Story] | None:
        """An open context, as a client knows it."""
        found = [(line, story) for line in self.alive() for story in line.open.values()]
        return found[number % len(found)] if found else None

    @rule(line=NUMBERS, voice=st.sampled_from(VOICES))
    def open(self, line: int, voice: UUID) -> None:
        chosen = self.alive()[line % len(self.alive())]
        story = Story(len(self.stories), voice)
        self.stories.append(story)
        if chosen.follow(Open(story.id, str(voice)), make_role(voice)):
            chosen.opening[story.id] = story

    @rule(
        number=NUMBERS, voice=st.sampled_from(VOICES), texts=st.lists(st.sampled_from(PIECES), min_size=2, max_size=8)
    )
    def converse(self, number: int, voice: UUID, texts: list[str]) -> None:
        """Much at once, so that there is something to disturb."""
        if not self.pick(number):
            self.open(number, voice)
            self.read(30, number)
        for text in texts:
            self.text(number, text)
            if text == PIECES[-1]:
                self.flush(number)
        self.speak_newest(3)
        self.read(12, number)

    @rule(number=NUMBERS)
    def open_again(self, number: int) -> None:
        if (found := self.pick(number)) and found[0].session.holds(found[1].id):
            assert not found[0].follow(Open(found[1].id, "v"), make_role(VOICES[0]))

    @rule(number=NUMBERS, text=st.sampled_from(PIECES))
    def text(self, number: int, text: str) -> None:
        found = self.pick(number)
        # A text that ends its context is not refused, but followed by an error.
        if found and found[0].follow(Text(found[1].id, text)) and found[0].session.holds(found[1].id):
            found[1].push(text)
            self.collect()

    @rule(number=NUMBERS)
    def flush(self, number: int) -> None:
        if (found := self.pick(number)) and found[0].follow(Flush(found[1].id)):
            found[1].flush()

    @rule(number=NUMBERS)
    def hear_out(self, number: int) -> None:
        """All that is there is spoken, and most of it read."""
        for _ in range(4):
            self.speak_newest(8)
            self.read(20, number)
            self.tick(0.25)

    @rule(number=NUMBERS)
    def end(self, number: int) -> None:
        if (found := self.pick(number)) and found[0].follow(End(found[1].id)):
            found[1].end()

    @rule(number=NUMBERS)
    def cancel(self, number: int) -> None:
        if found := self.pick(number):
            line, story = found
            followed = line.follow(Cancel(story.id))
            self.collect()
            if followed:
                assert not any(isinstance(event, Audio) and event.context == story.id for event in line.waiting)

    @rule(number=NUMBERS)
    def speak_whole(self, number: int) -> None:
        """A worker speaks a sentence, maybe one that was spoken or given up before."""
        self.deliver(number, range(8))

    @rule(count=st.integers(1, 8))
    def speak_newest(self, count: int) -> None:
        for number in range(1, count + 1):
            self.deliver(-number, range(8))

    @rule(number=st.integers(1, 3), chunks=st.lists(st.integers(0, 3), min_size=2, max_size=8))
    def speak_some(self, number: int, chunks: list[int]) -> None:
        """In any order, with holes and twice."""
        self.deliver(-number, chunks)

    @rule(number=NUMBERS, text=st.sampled_from(PIECES[:6]), chunks=st.lists(st.integers(0, 3), min_size=2, max_size=8))
    def stammer(self, number: int, text: str, chunks: list[int]) -> None:
        """The same of a sentence that was cut just now."""
        self.text(number, text)
        self.deliver(-1, chunks)

    def deliver(self, number: int, chunks: range | list[int]) -> None:
        self.collect()
        if self.jobs:
            line, job = self.jobs[number % len(self.jobs)]
            results = speak(job, self.whose[job.context].number)
            for chunk in chunks:
                if chunk < len(results):
                    line.take(line.session.receive(results[chunk]))
                    self.collect()

    @rule(number=NUMBERS)
    def misroute(self, number: int) -> None:
        """A result comes to a connection that does not hold its context."""
        if self.jobs:
            owner, job = self.jobs[number % len(self.jobs)]
            for line in self.lines:
                if job.context not in line.session.keys:
                    for result in speak(job, 255):
                        assert line.session.receive(result) == []
            foreign = replace(job, context=uuid4().hex)
            for result in speak(foreign, 255):
                assert owner.session.receive(result) == []

    @rule(number=NUMBERS, code=st.sampled_from(("voice_unavailable", "synthesis_failed")))
    def fail(self, number: int, code: str) -> None:
        if self.jobs:
            line, job = self.jobs[number % len(self.jobs)]
            line.take(line.session.receive(Failure(job.context, job.sentence, code, "no", True)))

    @rule(count=st.integers(1, 30), line=NUMBERS)
    def read(self, count: int, line: int) -> None:
        chosen = self.alive()[line % len(self.alive())]
        for _ in range(min(count, len(chosen.waiting))):
            chosen.read()

    @rule(seconds=st.sampled_from((0.25, 0.25, 0.25, 1.1, 1.1, 1.1, 3.0, 3.0, TIMEOUT_S + 1, IDLE_S + 1)))
    def tick(self, seconds: float) -> None:
        self.clock.now += seconds
        self.beat()
        for line in self.lines:
            line.take(line.session.tick(TIMEOUT_S, IDLE_S))
        self.collect()

    @rule(line=NUMBERS)
    def lose_stream(self, line: int) -> None:
        chosen = self.lines[line % len(self.lines)]
        chosen.take(chosen.session.resubmit())

    @rule(voice=st.sampled_from(VOICES), sure=st.integers(0, 3))
    def silence(self, voice: UUID, sure: int) -> None:
        if sure == 0:
            for line in self.lines:
                line.take(line.session.silence(voice))

    @rule(line=NUMBERS)
    def drain(self, line: int) -> None:
        chosen = self.lines[line % len(self.lines)]
        chosen.take(chosen.session.drain(1.0))

    @rule(line=NUMBERS)
    def misunderstand(self, line: int) -> None:
        chosen = self.alive()[line % len(self.alive())]
        chosen.take(chosen.session.refuse(InvalidMessage("what?")))

    @precondition(lambda self: len(self.lines) < 8)
    @rule(line=NUMBERS, number=NUMBERS, arrived=NUMBERS)
    def come_back(self, line: int, number: int, arrived: int) -> None:
        """At once, behind one of the last chunks."""
        self.lose_line(line)
        self.resume(number, len(self.alive()) - 1, arrived)
        self.hear_out(len(self.alive()) - 1)

    @precondition(lambda self: len(self.lines) < 8)
    @rule(line=NUMBERS)
    def lose_line(self, line: int) -> None:
        """What was sent may never have arrived."""
        chosen = self.alive()[line % len(self.alive())]
        chosen.take(chosen.session.suspend())
        chosen.lost = True
        self.lines.append(self.connect())

    @rule(line=NUMBERS, sure=st.integers(0, 2))
    def hang_up(self, line: int, sure: int) -> None:
        """Nobody came back."""
        if sure == 0:
            self.close(self.lines[line % len(self.lines)])

    def close(self, line: Line) -> None:
        line.take(line.session.close())
        assert not line.session.keys
        self.lines.remove(line)
        if not self.alive():
            self.lines.append(self.connect())

    @rule(number=NUMBERS, line=NUMBERS, arrived=NUMBERS)
    def resume(self, number: int, line: int, arrived: int) -> None:
        """From another connection, or from the same one, after any chunk that has arrived."""
        tokens = {token: owner for owner in self.lines for token in owner.session.tokens}
        found = [story for story in self.stories if story.token in tokens]
        found = [story for story in found if len(story.heard) > 1] or found
        if not found:
            return
        story, target = found[number % len(found)], self.alive()[line % len(self.alive())]
        owner = tokens[story.token]
        if story.id in target.open or story.id in target.opening or target.session.holds(story.id):
            return
        count = arrived % (len(story.heard) + 1)
        place = (story.heard[count - 1].sentence, story.heard[count - 1].chunk) if count else (0, -1)
        stale = {id(event) for event in owner.waiting}
        try:
            target.resume(Resume(story.id, story.token, *place), owner)
        except RelayError:
            # The workers are busy: all is as it was.
            assert owner.session.tokens >= {story.token}
            return
        self.forget(owner, story, stale if owner is target else {id(event) for event in owner.waiting})
        assert story.rewind(count) == place
        target.opening[story.id] = story
        self.collect()
        opened = next(event for event in reversed(target.waiting) if isinstance(event, Opened))
        assert (opened.characters, opened.ended) == (len(story.text), story.ended)

    def forget(self, owner: Line, story: Story, stale: set[int]) -> None:
        """Nobody reads any more what the old connection says of it."""
        told = [event for event in owner.waiting if id(event) not in stale or getattr(event, "context", "") != story.id]
        owner.outbox._items = deque(told)
        owner.open.pop(story.id, None)
        owner.opening.pop(story.id, None)

    @invariant()
    def places_are_held_by_open_contexts_only(self) -> None:
        held = sum(len(line.session.keys) for line in self.lines)
        assert sum(place.taken for place in self.admission._places) == held

    @invariant()
    def nothing_grows_without_bound(self) -> None:
        for line in self.lines:
            assert len(line.session.keys) <= MAX_CONTEXTS
            assert len(line.session.tokens) <= 2 * MAX_CONTEXTS
            for held in line.session._contexts.values():
                under_way = held.context._under_way
                assert len(under_way) <= MAX_UNDER_WAY
                assert all(len(sentence.held) <= 5 for sentence in under_way.values())
            waiting = [event for event in line.waiting if isinstance(event, Audio)]
            assert len(waiting) <= ROOM + MAX_CONTEXTS * MAX_UNDER_WAY * 5

    def teardown(self) -> None:
        """Whatever happened, every context that is open can be spoken to its end, and then nothing is left."""
        for line in self.alive():
            for story in [*line.open.values(), *line.opening.values()]:
                if not story.ended and line.session.holds(story.id) and line.follow(End(story.id)):
                    story.end()
        for _ in range(400):
            self.collect()
            jobs, self.jobs = self.jobs, []
            for line, job in jobs:
                for result in speak(job, self.whose[job.context].number):
                    line.take(line.session.receive(result))
            for line in self.alive():
                while line.waiting:
                    line.read()
            self.clock.now += 1.5
            self.beat()
            if not any(line.session.keys for line in self.alive()):
                break
            for line in self.alive():
                line.take(line.session.tick(10**6, 10**6))
                line.take(line.session.resubmit())
        for line in self.alive():
            assert not line.session.keys
            while line.waiting:
                line.read()
            assert not line.open
            assert not line.opening
        for line in list(self.lines):
            self.close(line)
        assert not any(place.taken for place in self.admission._places)
        self.clock.now += 3600
        self.beat()
        assert not self.admission._places


CoreMachine.TestCase.settings = settings(
    max_examples=80, stateful_step_count=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
test_any_order_of_events = CoreMachine.TestCase
