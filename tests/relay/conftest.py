"""The native protocol with and without its socket: a session with what it asked for, a client of a running relay."""

from __future__ import annotations

import asyncio
import functools
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest
import redis
from redis.asyncio import Redis
from websockets.asyncio.client import ClientConnection, connect

from relay.entrance.admission import Admission, Bounds
from relay.errors import Refused
from relay.native.face import NativeFace
from relay.native.frames import HEADER
from relay.native.messages import read_message
from relay.speaking.casting import Role
from relay.speaking.commands import Cancel, End, Flush, Open, Text
from relay.speaking.events import Audio, Event
from relay.speaking.outputs import Bury, Note, Output, Submit, Tell
from relay.speaking.session import Session, Terms
from storage.database import Database
from storage.redis import WORKERS, worker_key
from storage.redis import connect as connect_redis
from storage.settings import Settings
from storage.states import VoiceState
from storage.streams.broadcasts import revoke_key as tell_relays
from storage.streams.presence import WorkerLoad
from storage.streams.speech_log import Mark, Spoken, read_spoken
from storage.streams.wire import Chunk, Failure, Job
from storage.tenancy.api_keys import revoke_key
from storage.voices.voices import Speaker
from tests.conftest import DEADLINE_S, RunningStack, StartStack

TENANT = uuid4()
VOICE = Speaker(uuid4(), 1, VoiceState.READY)
TEXT_KEY = b"the tenant's audit key"
TEXT = "The first sentence is here. The second one follows. And then comes the third. "
EMBEDDING = np.full(256, 1 / 16, "<f4").tobytes()
"""Of nobody, but of unit norm: it has a voice."""
TIMEOUT_S = 20.0
IDLE_S = 300.0


@dataclass
class FakeClock:
    """Time that moves when the test says so."""

    now: float = 100.0

    def monotonic(self) -> float:
        return self.now

    def unix_ms(self) -> int:
        return int(self.now * 1000)


@dataclass
class Harness:
    """A session with what it asked for, sorted."""

    clock: FakeClock = field(default_factory=FakeClock)
    bounds: Bounds = field(default_factory=lambda: Bounds(max_contexts=40, max_tenant_contexts=30, max_queue=100))
    capacity: int = 40
    contexts: int = 40
    room: bool = True
    jobs: list[Job] = field(default_factory=list)
    said: list[dict[str, object]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    frames: list[bytes] = field(default_factory=list)
    buried: list[str] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    face: NativeFace = field(default_factory=lambda: NativeFace(80))
    left: int = 10**9
    """How many characters the tenant has left for today."""

    def __post_init__(self) -> None:
        self.admission = Admission("relay-1", self.clock, self.bounds)
        self.beat()
        terms = Terms(TENANT, self.contexts, self.reserve)
        self.session = Session("relay-1", terms, self.admission, self.clock, lambda: self.room)

    def beat(self, lag: int = 0) -> None:
        """A heartbeat with one worker that holds `capacity` streams."""
        loads = {"worker": WorkerLoad(self.capacity, 0, 0.0)}
        self.admission.observe(loads, {}, self.admission.demand(), lag)

    def reserve(self, characters: int) -> None:
        if characters > self.left:
            raise Refused("quota_exceeded", "used up", retry_after_ms=1000, retryable=False)
        self.left -= characters

    def open(self, context: str = "c") -> list[Output]:
        return self.send(type="open", context=context, voice=str(VOICE.voice))

    def send(self, **message: object) -> list[Output]:
        read = read_message(json.dumps(message))
        if isinstance(read, Open):
            role = Role(VOICE, hmac.new(TEXT_KEY, digestmod="sha256"))
            return self.take(self.session.open(read, role))
        assert isinstance(read, Text | Flush | End | Cancel)
        return self.take(self.session.handle(read))

    def receive(self, result: Chunk | Failure) -> list[Output]:
        return self.take(self.session.receive(result))

    def take(self, outputs: list[Output]) -> list[Output]:
        for output in outputs:
            match output:
                case Submit(job=job):
                    self.jobs.append(job)
                case Tell(event=event):
                    self.events.append(event)
                    self.hear(event)
                case Bury(key=key):
                    self.buried.append(key)
                case Note():
                    self.notes.append(output)
        return outputs

    def hear(self, event: Event) -> None:
        """What the native protocol makes of it."""
        for frame in self.face.tell(event):
            if isinstance(frame, bytes):
                self.frames.append(frame)
            else:
                assert isinstance(frame, str)
                self.said.append(json.loads(frame))

    def types(self) -> list[object]:
        return [message["type"] for message in self.said]

    def heard(self) -> list[tuple[int, int]]:
        """(sentence, chunk) of every frame that went out."""
        return [HEADER.unpack(frame[: HEADER.size])[4:6] for frame in self.frames]

    def spoken(self, job: Job, chunks: int = 3) -> list[Chunk]:
        """What a worker makes of a job."""
        pcm = [bytes([job.sentence, number] * 1920) for number in range(chunks)]
        return [Chunk(job.context, job.sentence, number, number == chunks - 1, pcm[number]) for number in range(chunks)]

    def speak(self, text: str, context: str = "c", chunks: int = 3) -> None:
        """Have a text spoken to the end of its last sentence."""
        self.send(type="text", context=context, text=text)
        done = 0
        while done < len(self.jobs):
            for chunk in self.spoken(self.jobs[done], chunks):
                self.receive(chunk)
            done += 1


def make_audio(pcm: bytes, *, number: int = 7, last: bool = False, ttfa_ms: int = 0) -> Audio:
    """A chunk of the context `c`."""
    return Audio("c", number, 3, 12, pcm, last=last, start_s=0.0, ready_at=0.0, ttfa_ms=ttfa_ms)


@pytest.fixture
def harness() -> Harness:
    """With the context `c` open."""
    made = Harness()
    made.open()
    return made


@pytest.fixture(name="redis")
async def _redis(settings: Settings) -> AsyncIterator[Redis]:
    client = connect_redis(settings.redis_url)
    yield client
    await client.aclose()


async def revoke(database: Database, client: Redis, key_id: UUID) -> float:
    """End a key as the API does it; returns when it was done, by the monotonic clock."""
    async with database.transaction(operator=True) as connection:
        assert await revoke_key(connection, key_id)
    await tell_relays(client, key_id)
    return time.monotonic()


def announce_nobody(redis_url: str) -> None:
    """A worker is there that is nowhere and never goes."""
    with redis.Redis.from_url(redis_url) as client:
        client.sadd(WORKERS, "none")
        client.set(worker_key("none"), json.dumps(asdict(WorkerLoad(8, 0, 0.0))))


def start_lone_relay(start_stack: StartStack, **changed: Any) -> RunningStack:
    """A relay alone, told of a worker that is not there."""
    stack = start_stack(only=(), workers=1, **changed)
    announce_nobody(stack.services.variables["REDIS_URL"])
    stack.start("relay")
    stack.wait_ready()
    return stack


@pytest.fixture
def start_relay(start_stack: StartStack) -> Callable[..., RunningStack]:
    """`start_relay(idle_timeout_s=2)`: a relay alone, told of a worker that is not there and never goes."""
    return functools.partial(start_lone_relay, start_stack)


@asynccontextmanager
async def open_socket(stack: RunningStack, key: str, **more: Any) -> AsyncIterator[ClientConnection]:
    """A connection that was greeted."""
    headers = {"Authorization": f"Bearer {key}"}
    url = stack.relay_url.replace("http", "ws") + "/v1/stream"
    async with connect(url, additional_headers=headers, **more) as connection:
        await hear_until(connection, "hello")
        yield connection


async def open_context(connection: ClientConnection, voice: UUID | str, context: str = "c") -> dict[str, Any]:
    """The `opened` message."""
    await connection.send(json.dumps({"type": "open", "context": context, "voice": str(voice)}))
    opened = await hear_until(connection, "opened")
    assert isinstance(opened, dict)
    return opened


async def hear_until(connection: ClientConnection, wanted: str | type[bytes]) -> Any:
    """The next message of this type, or the next frame; what comes before it is passed over."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            message = await connection.recv()
            if isinstance(message, bytes):
                if wanted is bytes:
                    return message
                continue
            read = json.loads(message)
            if read["type"] == wanted:
                return read
            assert read["type"] != "error", read


async def hear_error(connection: ClientConnection) -> dict[str, Any]:
    """The next error."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            message = await connection.recv()
            if isinstance(message, str) and (read := json.loads(message))["type"] == "error":
                return dict(read)


async def noted(client: Redis, tenant: UUID, count: int) -> list[Spoken]:
    """The tenant's notes in the speech log, as soon as there are so many."""
    async with asyncio.timeout(DEADLINE_S):
        while len(found := (await read_spoken(client, tenant, Mark(), 100)).entries) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return list(found)
