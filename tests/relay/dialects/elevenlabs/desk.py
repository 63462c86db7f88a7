"""A face with the real session behind it, and workers that speak when the test says so."""

from __future__ import annotations

import base64
import hmac
import json
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from relay.dialects.elevenlabs.multi_face import MultiFace
from relay.dialects.elevenlabs.options import Options, read_options
from relay.dialects.elevenlabs.stream_face import StreamFace
from relay.doors.face import Close
from relay.errors import RelayError, UnknownVoice
from relay.speaking.casting import Role
from relay.speaking.commands import Cancel, Command, End, Flush, Leave, Open, Refuse, Text
from relay.speaking.events import Audio, Event
from relay.speaking.outputs import Output, Silence, Submit, Tell
from storage.streams.wire import Chunk, Failure, Job, Timing
from tests.relay.conftest import TEXT_KEY, VOICE, Harness

CHUNK_MS = 80
WORD_MS = 200
"""How long every word takes, but for the silence at the end of each sentence."""
TAIL_MS = 100
BYTES_PER_MS = 48
MISSING = "missing"
"""The voice that nobody has."""


@dataclass
class Desk:
    """`say` and `speak` move it; `frames` and `closed` are what the client has got."""

    face: MultiFace | StreamFace
    harness: Harness = field(default_factory=Harness)
    events: deque[Event] = field(default_factory=deque)
    jobs: deque[Job] = field(default_factory=deque)
    commands: list[Command] = field(default_factory=list)
    frames: list[dict[str, Any]] = field(default_factory=list)
    closed: Close | None = None
    leaving: Leave | None = None
    voice: str = str(VOICE.voice)

    @property
    def now(self) -> float:
        return self.harness.clock.now

    def say(self, **message: Any) -> None:
        """A message of the client; what it is answered at once is in `frames`."""
        self.say_raw(json.dumps(message))

    def say_raw(self, raw: str | bytes) -> None:
        if self.closed is None:
            self._follow(self.face.hear(raw, self.now))
        self.deliver()

    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.harness.clock.now += seconds
        if self.closed is None:
            wanted = self.face.tick(self.now)
            self._follow([command for command in wanted if not isinstance(command, Close)])
            for close in wanted:
                self.closed = close if isinstance(close, Close) else self.closed
        self.deliver()

    def speak(self) -> None:
        """The workers say all that they were given."""
        while self.jobs:
            self.speak_sentence()

    def speak_sentence(self) -> None:
        """The workers say the oldest sentence."""
        for result in say_job(self.jobs.popleft()):
            self._take(self.harness.session.receive(result))
        self.deliver()

    def fail(self, code: str = "synthesis_failed") -> None:
        """The workers cannot say the oldest sentence."""
        job = self.jobs.popleft()
        self._take(self.harness.session.receive(Failure(job.context, job.sentence, code, "not this one", False)))
        self.deliver()

    def deliver(self) -> None:
        """Everything that waits goes to the client."""
        while self.events and self.closed is None:
            for sent in self.face.tell(self.events.popleft()):
                if isinstance(sent, Close):
                    self.closed = sent
                    break
                self.frames.append(json.loads(sent))
        if self.leaving and not self.harness.session.keys and self.closed is None:
            self.closed = Close(self.leaving.code)

    def take(self) -> list[dict[str, Any]]:
        """The frames since this was asked last."""
        taken, self.frames = self.frames, []
        return taken

    def _follow(self, commands: Any) -> None:
        for command in commands:
            self.commands.append(command)
            try:
                self._take(self._do(command))
            except RelayError as error:
                self._take(self.harness.session.refuse(error, command.context))

    def _do(self, command: Command) -> list[Output]:
        session = self.harness.session
        match command:
            case Open():
                session.check_open(command.context)
                if command.voice == MISSING:
                    raise UnknownVoice(command.voice)
                return session.open(command, Role(VOICE, hmac.new(TEXT_KEY, digestmod="sha256")))
            case Text() | Flush() | End() | Cancel():
                return session.handle(command)
            case Refuse():
                return session.refuse(command.error, command.context)
            case Leave():
                self.leaving = command
                return []
        raise TypeError(command)

    def _take(self, outputs: list[Output]) -> None:
        for output in outputs:
            match output:
                case Tell(event=event):
                    self.events.append(event)
                case Submit(job=job):
                    self.jobs.append(job)
                case Silence(context=number):
                    kept = [e for e in self.events if not (isinstance(e, Audio) and e.number == number)]
                    self.events = deque(kept)
                    self.jobs = deque(job for job in self.jobs if job.context in self.harness.session.keys)


def say_job(job: Job) -> list[Chunk | Failure]:
    """What a worker makes of a job: every word as long as the others, a silence behind them."""
    words = job.text.split()
    total_ms = WORD_MS * len(words) + TAIL_MS
    timings = [Timing(number, WORD_MS * number, WORD_MS * (number + 1)) for number in range(len(words))]
    chunks: list[Chunk | Failure] = []
    for number, start_ms in enumerate(range(0, total_ms, CHUNK_MS)):
        end_ms = min(start_ms + CHUNK_MS, total_ms)
        last = end_ms == total_ms
        due = tuple(timing for timing in timings if start_ms < timing.end_ms <= end_ms)
        pcm = bytes(2 * 24 * (end_ms - start_ms))
        chunks.append(Chunk(job.context, job.sentence, number, last, pcm, words=due))
    return chunks


def make_options(**query: str) -> Options:
    """pcm at the rate that needs no encoder, unless the test wants something else."""
    return read_options({"output_format": "pcm_24000", **query})


def open_multi(**query: str) -> Desk:
    """A `multi-stream-input` whose voice is there."""
    return Desk(MultiFace(str(VOICE.voice), make_options(**query)))


def open_stream(**query: str) -> Desk:
    """A `stream-input` whose voice is there."""
    return Desk(StreamFace(str(VOICE.voice), make_options(**query)))


def read_audio(frames: list[dict[str, Any]], context: str | None = None) -> bytes:
    """The sound of one context, or of all."""
    mine = [frame for frame in frames if context is None or frame.get("contextId") == context]
    return b"".join(base64.b64decode(frame["audio"]) for frame in mine if frame.get("audio"))


def read_text(frames: list[dict[str, Any]], kind: str = "alignment") -> str:
    """The characters of all alignments."""
    return "".join(char for frame in frames if frame.get(kind) for char in frame[kind]["chars"])


def begin(desk: Desk, context: str, text: str = "Good morning to you. ", **more: Any) -> None:
    """The first messages of a context, as the plugins send them."""
    desk.say(text=" ", context_id=context, **more)
    if text:
        desk.say(text=text, context_id=context)


def finals(frames: list[dict[str, Any]], context: str) -> list[dict[str, Any]]:
    """The last frames of a context, of which there should be one."""
    return [frame for frame in frames if frame["contextId"] == context and frame.get("isFinal")]
