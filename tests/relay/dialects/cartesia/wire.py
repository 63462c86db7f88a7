"""Cartesia's face on a real session, without sockets and workers: messages in, frames out, time as the test says."""

from __future__ import annotations

import base64
import hmac
import json
from collections import deque
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from relay.dialects.cartesia.face import CartesiaFace
from relay.doors.face import Close
from relay.entrance.admission import Admission, Bounds
from relay.errors import Refused, RelayError, UnknownVoice
from relay.speaking.casting import Role
from relay.speaking.commands import Cancel, Command, End, Flush, Open, Refuse, Text
from relay.speaking.events import Audio, Event
from relay.speaking.outputs import Output, Silence, Submit, Tell
from relay.speaking.session import Session, Terms
from storage.streams.presence import WorkerLoad
from storage.streams.wire import Chunk, Failure, Job, Timing
from tests.relay.conftest import TENANT, TEXT_KEY, VOICE, FakeClock

RAW = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24000}
CHUNK = 1920
"""Samples of 80 ms."""
Frame = dict[str, Any]


def tone(text: str) -> bytes:
    """A sample that says of which sentence it is."""
    return (crc32(text.encode()) % 60_000 - 30_000).to_bytes(2, "little", signed=True)


def sound(text: str) -> bytes:
    """What `Wire.work` makes of a sentence: a chunk a word."""
    return tone(text) * CHUNK * len(text.split())


@dataclass
class Wire:
    """One connection."""

    face: CartesiaFace = field(default_factory=CartesiaFace)
    clock: FakeClock = field(default_factory=FakeClock)
    left: int = 10**9
    outbox: deque[Event] = field(default_factory=deque)
    jobs: deque[Job] = field(default_factory=deque)
    """What the workers have not begun with."""
    spoken: list[str] = field(default_factory=list)
    """The texts of all jobs, in their order."""
    frames: list[Frame] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.admission = Admission("relay-1", self.clock, Bounds(100, 100, 1000))
        self.beat()
        self.session = Session("relay-1", Terms(TENANT, 100, self._reserve), self.admission, self.clock, lambda: True)

    def beat(self) -> None:
        """A worker is there."""
        self.admission.observe({"worker": WorkerLoad(100, 0, 0.0)}, {}, self.admission.demand(), 0)

    def say(self, context: object = "c", transcript: object = "", **more: object) -> None:
        """Send a generation request."""
        self.send(self.write(context, transcript, **more))

    def write(self, context: object = "c", transcript: object = "", **more: object) -> str:
        """A generation request, in the voice and the format of the tests where it does not say otherwise."""
        message = {"context_id": context, "transcript": transcript, "model_id": "sonic-3", "continue": True}
        voice = {"mode": "id", "id": str(VOICE.voice)}
        return json.dumps({**message, "voice": voice, "output_format": RAW, "language": "en", **more})

    def end(self, context: str = "c", transcript: str = "") -> None:
        """As Pipecat ends a turn, and with a space as LiveKit does."""
        self.say(context, transcript, **{"continue": False})

    def cancel(self, context: str = "c") -> None:
        self.send(json.dumps({"context_id": context, "cancel": True}))

    def send(self, raw: str | bytes) -> None:
        for command in self.face.hear(raw, self.clock.now):
            self._follow(command)

    def pass_time(self, seconds: float) -> None:
        """Quarters of a second, each with its tick, as far as there are any."""
        for _ in range(max(1, round(seconds * 4))):
            self.clock.now += min(seconds, 0.25)
            self.beat()
            self._take(self.session.tick(20.0, 300.0))
            for command in self.face.tick(self.clock.now):
                assert not isinstance(command, Close)
                self._follow(command)

    def work(self, count: int = 10**6, *, words: bool = True) -> None:
        """Have so many sentences spoken, with all their chunks."""
        while self.jobs and count:
            job = self.jobs.popleft()
            self.spoken.append(job.text)
            count -= 1
            length = len(job.text.split())
            for number in range(length):
                times = (Timing(number, 80 * number, 80 * number + 60),) if words else ()
                last = number == length - 1
                chunk = Chunk(job.context, job.sentence, number, last, tone(job.text) * CHUNK, words=times)
                self._take(self.session.receive(chunk))

    def fail(self, code: str = "synthesis_failed") -> None:
        """The next sentence cannot be spoken."""
        job = self.jobs.popleft()
        self._take(self.session.receive(Failure(job.context, job.sentence, code, "no", True)))

    def tell(self, count: int = 10**6) -> list[Frame]:
        """Send so many events; returns their frames."""
        told: list[Frame] = []
        while self.outbox and count:
            told.extend(map(json.loads, self.face.tell(self.outbox.popleft())))
            count -= 1
        self.frames.extend(told)
        return told

    def run(self) -> list[Frame]:
        """Have everything spoken and told."""
        self.work()
        return self.tell()

    def _reserve(self, characters: int) -> None:
        if characters > self.left:
            raise Refused("quota_exceeded", "used up", retry_after_ms=1000, retryable=False)
        self.left -= characters

    def _follow(self, command: Command) -> None:
        context = getattr(command, "context", None)
        try:
            match command:
                case Open():
                    self.session.check_open(command.context)
                    if command.voice not in (str(VOICE.voice), "nina"):
                        raise UnknownVoice(command.voice)
                    self._take(self.session.open(command, Role(VOICE, hmac.new(TEXT_KEY, digestmod="sha256"))))
                case Text() | Flush() | End() | Cancel():
                    self._take(self.session.handle(command))
                case Refuse():
                    self._take(self.session.refuse(command.error, context))
                case _:
                    raise AssertionError(command)
        except RelayError as error:
            self._take(self.session.refuse(error, context))

    def _take(self, outputs: list[Output]) -> None:
        for output in outputs:
            match output:
                case Submit(job=job):
                    self.jobs.append(job)
                case Tell(event=event):
                    self.outbox.append(event)
                case Silence(context=number):
                    kept = [e for e in self.outbox if not (isinstance(e, Audio) and e.number == number)]
                    self.outbox = deque(kept)


def kinds(frames: list[Frame]) -> list[str]:
    """Their types, several of a kind in a row as one."""
    found: list[str] = []
    for frame in frames:
        if found[-1:] != [frame["type"]]:
            found.append(frame["type"])
    return found


def audio(frames: list[Frame], context: str = "c") -> bytes:
    """What was heard of a context."""
    chunks = [frame["data"] for frame in frames if frame["type"] == "chunk" and frame["context_id"] == context]
    return b"".join(map(base64.b64decode, chunks))


def words(frames: list[Frame], context: str | None = "c") -> list[tuple[str, float, float]]:
    """Its words with their times."""
    own = [frame for frame in frames if frame["type"] == "timestamps" and frame["context_id"] == context]
    told = [frame["word_timestamps"] for frame in own]
    return [word for times in told for word in zip(times["words"], times["start"], times["end"], strict=True)]
