"""What the system tests share: voices enrolled through the API, and speech as a client hears it."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakeVoice
from tests.system.enrolling import start_enrolling as start_enrolling
from timbrelay.client import Chunk, Client, Context
from worker.enrolment.recording import read_recording
from worker.sv2tts.bundle import Bundle
from worker.sv2tts.encoder import SpeakerEncoder

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = {"low": ROOT / "samples" / "reference-low.wav", "high": ROOT / "samples" / "reference-high.wav"}
SPEECH = ("worker", "relay")
"""`start_stack(only=SPEECH)`: all that speaking needs, at half of what it takes to start Celery as well."""
LONG_SENTENCE = "Extraordinarily complicated international telecommunications regulations"
"""Few words and many syllables: long enough to be disturbed in the middle."""


@dataclass(slots=True)
class Heard:
    """The chunks of a context, as they came."""

    chunks: list[Chunk] = field(default_factory=list)

    @property
    def pcm(self) -> bytes:
        return b"".join(chunk.pcm for chunk in self.chunks)

    def check_order(self) -> None:
        """Every chunk of every sentence once, in order, the last marked and no other."""
        numbers: dict[int, list[int]] = defaultdict(list)
        for chunk in self.chunks:
            numbers[chunk.sentence].append(chunk.number)
        assert list(numbers) == list(range(len(numbers)))
        assert all(found == list(range(len(found))) for found in numbers.values())
        lasts = [chunk.number == len(numbers[chunk.sentence]) - 1 for chunk in self.chunks]
        assert [chunk.last for chunk in self.chunks] == lasts


@dataclass(slots=True)
class Speaker:
    """A tenant's client with a voice to speak in."""

    client: Client
    voice: str
    key: str

    async def speak(self, text: str, on_chunk: Callable[[Chunk], None] | None = None) -> Heard:
        """Say a text in a connection and context of its own, and hear it to its end."""
        async with self.client.connect() as connection:
            context = await connection.open(self.voice)
            await context.send(text)
            await context.end()
            return await hear(context, on_chunk)


async def hear(context: Context, on_chunk: Callable[[Chunk], None] | None = None) -> Heard:
    """Listen to a context to its end."""
    heard = Heard()
    async for event in context:
        if isinstance(event, Chunk):
            heard.chunks.append(event)
            if on_chunk is not None:
                on_chunk(event)
    return heard


MakeSpeaker = Callable[..., Awaitable[Speaker]]


@functools.cache
def embed(sample: str) -> bytes:
    """What an enrolment makes of a sample: the embedding as it is kept, 256 float32 in little endian."""
    recording = read_recording(SAMPLES[sample].read_bytes(), max_bytes=10 * 1024 * 1024).samples
    return SpeakerEncoder(Bundle.load(ROOT / "bundles" / "base")).embed(recording).astype("<f4").tobytes()


@pytest.fixture
async def make_speaker(
    make_tenant: Callable[[str], Awaitable[Any]], make_voice: MakeVoice
) -> AsyncIterator[MakeSpeaker]:
    """`await make_speaker(stack, "acme", "low")`: a tenant with an enrolled sample.

    It is enrolled through the API; in a stack without Celery it is there at once, with the same embedding.
    """
    clients: list[Client] = []

    async def make(stack: Any, tenant: str, sample: str) -> Speaker:
        made = await make_tenant(tenant)
        client = Client(stack.relay_url, made.key)
        clients.append(client)
        if "celery" not in stack.processes:
            return Speaker(client, str(await make_voice(made.id, embedding=embed(sample), name=sample)), made.key)
        consent = await client.create_consent("Nobody", "The recording is synthetic.")
        pending = await client.enroll(sample, consent.id, SAMPLES[sample].read_bytes())
        return Speaker(client, (await client.wait_ready(pending.id)).id, made.key)

    yield make
    for client in clients:
        await client.close()
