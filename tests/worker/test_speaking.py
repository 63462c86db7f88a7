"""worker.speaking, with the bundle in service, a real Postgres and a real Valkey."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest
from redis.asyncio import Redis

from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.redis import connect
from storage.settings import Settings
from storage.streams.jobs import JobStream
from storage.streams.results import ResultPublisher, ResultReader
from storage.streams.wire import Chunk, Job
from tests.conftest import MakeTenant, MakeVoice
from worker.embeddings import EmbeddingCache
from worker.engine import Engine
from worker.scheduling import Limits
from worker.speaking import Speaking
from worker.sv2tts.bundle import Bundle
from worker.sv2tts.speech import SpeechModel

BUNDLE = Path(__file__).resolve().parents[2] / "bundles" / "base"
TEXT = "It costs $1.50 — really."
EMBEDDING = np.full(256, 1 / 16, np.float32).tobytes()


@pytest.fixture
async def redis(settings: Settings) -> AsyncIterator[Redis]:
    connection = connect(settings.redis_url)
    yield connection
    await connection.aclose()


@pytest.fixture
async def speaking(database: Database, keyring: Keyring, redis: Redis) -> AsyncIterator[Speaking]:
    engine = Engine(SpeechModel(Bundle.load(BUNDLE)), Limits(run_ahead_s=60.0))
    serve = asyncio.create_task(engine.serve())
    jobs = JobStream(redis)
    await jobs.ensure_group()
    yield Speaking(engine, EmbeddingCache(database, keyring), jobs, ResultPublisher(redis))
    serve.cancel()
    await asyncio.gather(serve, return_exceptions=True)


@pytest.fixture
async def job(make_tenant: MakeTenant, make_voice: MakeVoice) -> Job:
    tenant: UUID = (await make_tenant("acme")).id
    voice = await make_voice(tenant, embedding=EMBEDDING)
    return Job("relay", "context", 0, tenant, voice, 1, 0, TEXT)


async def _speak(redis: Redis, speaking: Speaking, job: Job, *, claimed: bool = False) -> list[Chunk]:
    """What the relay gets for a job, without how long it took."""
    jobs, reader = JobStream(redis), ResultReader(redis, job.relay, 60_000)
    await reader.keep_alive()
    await jobs.submit(job)
    (delivery,) = await jobs.take("first", 1, 1000)
    if claimed:
        (delivery,) = await jobs.claim("second", 0, 1)
    await speaking.speak(delivery, claimed=claimed)
    heard = [result async for result in reader.read()]
    await reader.close()
    chunks = [replace(result, computed_us=0) for result in heard if isinstance(result, Chunk)]
    assert len(chunks) == len(heard)
    return chunks


async def test_words_are_published_with_their_chunks(redis: Redis, speaking: Speaking, job: Job) -> None:
    """A relay learns when each sounding word of the job's text was spoken, and gets no mel frames unasked."""
    chunks = await _speak(redis, speaking, job)
    assert chunks[-1].last
    assert [timing.word for chunk in chunks for timing in chunk.words] == [0, 1, 2, 4]
    assert not any(chunk.mel for chunk in chunks)


async def test_a_job_that_asks_for_mel_frames_gets_them(redis: Redis, speaking: Speaking, job: Job) -> None:
    """One frame of 80 numbers for every ten milliseconds of sound, beside the same sound."""
    plain, with_mel = [await _speak(redis, speaking, replace(job, mel=mel)) for mel in (False, True)]
    assert [replace(chunk, mel=b"") for chunk in with_mel] == plain
    assert sum(len(chunk.mel) for chunk in with_mel) / 160 == sum(len(chunk.pcm) for chunk in plain) / 480


async def test_a_claimed_job_is_the_same_again(redis: Redis, speaking: Speaking, job: Job) -> None:
    """Whoever takes over a sentence publishes, chunk by chunk, the sound, the words and the frames of the first."""
    asked = replace(job, mel=True)
    assert await _speak(redis, speaking, asked, claimed=True) == await _speak(redis, speaking, asked)
