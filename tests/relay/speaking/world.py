"""What a machine that tries the core out needs: workers that tag every chunk, connections with outboxes, clients."""

from __future__ import annotations

import hmac
from collections import deque
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from relay.doors.face import Close
from relay.doors.outbox import Outbox
from relay.entrance.admission import Admission
from relay.errors import RelayError
from relay.speaking.casting import Role
from relay.speaking.commands import Cancel, End, Flush, Open, Resume, Text
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
)
from relay.speaking.holding import Kept
from relay.speaking.outputs import Output, Silence, Submit, Tell
from relay.speaking.sentences import Sentence, SentenceCutter
from relay.speaking.session import Session, Terms
from storage.states import VoiceState
from storage.streams.wire import Chunk, Failure, Job, Result, Timing
from storage.voices.voices import Speaker
from tests.relay.conftest import FakeClock

ROOM = 6
CHUNK_SAMPLES = 240
CHUNK_MS = 10
UNSPEAKABLE = "你"


def speak(job: Job, story: int) -> list[Result]:
    """What any worker makes of a sentence of this story: each sample says whose it is, and which chunk's."""
    if UNSPEAKABLE in job.text:
        return [Failure(job.context, job.sentence, "nothing_to_say", "no sound", False)]
    words, count = job.text.split(), 2 + len(job.text) % 4
    made: list[Result] = []
    for number in range(count):
        due = [word for word in range(len(words)) if word * count // len(words) == number]
        at_ms = number * CHUNK_MS
        timings = tuple(Timing(word, at_ms + place, at_ms + place + 1) for place, word in enumerate(due))
        made.append(Chunk(job.context, job.sentence, number, number == count - 1, tag(job, story, number), 0, timings))
    return made


def tag(job: Job, story: int, chunk: int) -> bytes:
    return bytes([story % 256, job.sentence % 256, chunk, len(job.text) % 256] * (CHUNK_SAMPLES // 2))


@dataclass
class Story:
    """A context as its client knows it, through all its connections."""

    number: int
    voice: UUID
    text: str = ""
    flushes: list[int] = field(default_factory=list)
    """For each, how many sentences come before it."""
    cutter: SentenceCutter = field(default_factory=SentenceCutter)
    sentences: list[Sentence] = field(default_factory=list)
    ended: bool = False
    over: str = ""
    """How it ended, once it has."""
    token: str = ""
    resumed: bool = False
    heard: list[Audio] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    """For each chunk, how many flushes were answered before it."""
    flushed: int = 0
    passed: set[int] = field(default_factory=set)
    """Sentences without a sound, of which nothing is to be heard."""

    @property
    def id(self) -> str:
        """The client's name for it."""
        return f"c{self.number}"

    def push(self, text: str) -> None:
        self.text += text
        self.sentences += self.cutter.push(text)

    def flush(self) -> None:
        self.sentences += self.cutter.flush()
        self.flushes.append(len(self.sentences))

    def end(self) -> None:
        self.sentences += self.cutter.end()
        self.ended = True

    @property
    def complete(self) -> int:
        """How many sentences were heard to their end, or have none."""
        last = {audio.sentence for audio in self.heard if audio.last} | self.passed
        return next(number for number in range(len(last) + 1) if number not in last)

    def rewind(self, count: int) -> tuple[int, int]:
        """Only the first chunks have arrived; the place to resume at."""
        self.over, self.resumed = "", True
        del self.heard[count:], self.marks[count:]
        self.flushed = self.marks[-1] if self.marks else 0
        place = (self.heard[-1].sentence, self.heard[-1].chunk) if self.heard else (0, -1)
        self.passed = {sentence for sentence in self.passed if sentence < place[0]}
        return place

    def hear(self, audio: Audio) -> None:
        """Check a chunk against all that went before it."""
        sentence = self.sentences[audio.sentence]
        job = Job("", "", audio.sentence, self.voice, self.voice, 1, 0, sentence.text)
        assert audio.pcm == tag(job, self.number, audio.chunk)
        assert audio.sentence == self.complete
        assert audio.chunk == sum(before.sentence == audio.sentence for before in self.heard)
        assert audio.last == (audio.chunk == len(speak(job, 0)) - 1)
        assert audio.start_s == sum(before.samples for before in self.heard) / SAMPLE_RATE
        self.heard.append(audio)
        self.marks.append(self.flushed)
        if audio.last:
            self.check_words(sentence)

    def check_words(self, sentence: Sentence) -> None:
        """All of a sentence have come with its last chunk, in order, as they were written, within its audio."""
        begins_s, ends_s = (
            sum(audio.samples for audio in self.heard if audio.sentence < bound) / SAMPLE_RATE
            for bound in (sentence.number, sentence.number + 1)
        )
        words = [word for audio in self.heard if audio.sentence == sentence.number for word in audio.words]
        assert [(word.start, word.end) for word in words] == [(word.start, word.end) for word in sentence.words]
        assert [word.text for word in words] == [self.text[word.start : word.end] for word in words]
        times = [time for word in words for time in (word.start_s, word.end_s)]
        assert times == sorted(times)
        assert begins_s <= times[0] <= times[-1] <= ends_s


class Line:
    """One connection: a session, what waits to be sent over it, and its client's end."""

    def __init__(self, admission: Admission, clock: FakeClock, tenant: UUID, name: str) -> None:
        self.name = name
        self.clock = clock
        self.outbox = Outbox()
        self.session = Session(name, Terms(tenant, 30, lambda _: None), admission, clock, self.has_room)
        self.session.kept = Kept()
        self.open: dict[str, Story] = {}
        """As its client knows it."""
        self.opening: dict[str, Story] = {}
        self.lost = False
        self.jobs: list[Job] = []

    @property
    def waiting(self) -> deque[Event | Close]:
        """What is not read yet."""
        return self.outbox._items

    def has_room(self) -> bool:
        return len(self.outbox) < ROOM

    def take(self, outputs: list[Output]) -> None:
        for output in outputs:
            match output:
                case Tell(event=event):
                    self.outbox.put(event)
                case Silence(context=number):
                    self.outbox.drop(number)
                case Submit(job=job):
                    self.jobs.append(job)

    def follow(self, command: Open | Text | Flush | End | Cancel, role: Role | None = None) -> bool:
        """As relay.doors.conversation does it; whether it was followed."""
        try:
            if isinstance(command, Open):
                assert role is not None
                self.take(self.session.open(command, role))
            else:
                self.take(self.session.handle(command))
        except RelayError as error:
            self.take(self.session.refuse(error, command.context))
            return False
        return True

    def resume(self, command: Resume, owner: Line) -> None:
        """Raises RelayError."""
        suspended, outputs = self.session.take_over(command, owner.session)
        owner.take(outputs)
        self.take(self.session.resume(command, suspended))

    def read(self) -> None:
        """The client reads the next event."""
        event = self.waiting.popleft()
        assert not isinstance(event, Close)
        if isinstance(event, Draining) or (event.context not in self.open and not isinstance(event, Opened)):
            # Whatever is told of a context that is not open can only say why not.
            assert isinstance(event, Draining | Failed)
            return
        match event:
            case Opened():
                story = self.opening.pop(event.context)
                assert event.context not in self.open
                assert event.characters <= len(story.text)
                self.open[event.context] = story
                story.token = event.resume
            case Audio():
                self.open[event.context].hear(event)
            case SentenceBegun():
                sentence = self.open[event.context].sentences[event.sentence]
                assert (event.start, event.end) == (sentence.start, sentence.end)
            case SentenceEnded():
                story = self.open[event.context]
                if UNSPEAKABLE in story.sentences[event.sentence].text:
                    story.passed.add(event.sentence)
                assert story.complete > event.sentence
            case Flushed():
                story = self.open[event.context]
                assert event.flush <= story.flushed
                assert story.complete >= story.flushes[event.flush]
                story.flushed = max(story.flushed, event.flush + 1)
            case Done():
                story = self._finish(event.context, "done")
                assert story.ended
                assert story.complete == len(story.sentences) == event.sentences
                assert event.samples == sum(audio.samples for audio in story.heard)
                assert story.flushed == len(story.flushes)
            case Cancelled():
                self._finish(event.context, "cancelled")
            case Failed(context=str(context), ended=True):
                self._check_unspoken(self.open[context], event)
                self._finish(context, event.error.code)

    def _check_unspoken(self, story: Story, failed: Failed) -> None:
        if failed.error.code == "voice_unavailable":
            return
        rest = story.sentences[story.complete :]
        behind = story.sentences[-1].end if story.sentences else 0
        begins = rest[0].start if rest else behind
        if begins == len(story.text):
            assert failed.unspoken is None or story.resumed
            return
        assert failed.unspoken is not None
        assert failed.unspoken[1] == len(story.text)
        assert failed.unspoken[0] == begins or (story.resumed and failed.unspoken[0] < begins)

    def _finish(self, context: str, how: str) -> Story:
        story = self.open.pop(context)
        assert not story.over
        story.over = how
        return story


def make_role(voice: UUID) -> Role:
    return Role(Speaker(voice, 1, VoiceState.READY), hmac.new(b"key", digestmod="sha256"))


VOICES = (uuid4(), uuid4())
