"""worker.embeddings, over a real Postgres."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest

from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.redis import connect, silenced_key
from storage.settings import Settings
from storage.streams.broadcasts import silence_voice
from storage.voices.voices import begin_deletion
from tests.conftest import MakeTenant, MakeVoice
from worker.embeddings import CAPACITY, TTL_S, EmbeddingCache, Key
from worker.errors import VoiceUnavailable

VECTOR = np.linspace(0, 1, 256, dtype=np.float32)
RAW = VECTOR.astype("<f4").tobytes()


class _Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def tenant(make_tenant: MakeTenant) -> UUID:
    return (await make_tenant("acme")).id


async def test_an_embedding_is_what_was_stored(
    database: Database, keyring: Keyring, tenant: UUID, make_voice: MakeVoice
) -> None:
    """256 float32, bit for bit."""
    voice = await make_voice(tenant, embedding=RAW)
    cache = EmbeddingCache(database, keyring)
    assert np.array_equal(await cache.get(tenant, voice, 1), VECTOR)


async def test_another_tenant_does_not_get_it_from_the_cache(
    database: Database, keyring: Keyring, tenant: UUID, make_voice: MakeVoice, make_tenant: MakeTenant
) -> None:
    """The tenant is part of the key: a warm cache is no way around the fence."""
    voice = await make_voice(tenant, embedding=RAW)
    cache = EmbeddingCache(database, keyring)
    await cache.get(tenant, voice, 1)
    with pytest.raises(VoiceUnavailable):
        await cache.get((await make_tenant("other")).id, voice, 1)


async def test_an_unknown_voice_or_version_is_unavailable(
    database: Database, keyring: Keyring, tenant: UUID, make_voice: MakeVoice
) -> None:
    """No other voice takes its place."""
    voice = await make_voice(tenant, embedding=RAW)
    cache = EmbeddingCache(database, keyring)
    for wanted, version in ((uuid4(), 1), (voice, 2)):
        with pytest.raises(VoiceUnavailable):
            await cache.get(tenant, wanted, version)


async def test_a_deleted_voice_is_gone_when_it_is_forgotten_and_at_the_latest_after_its_time(
    database: Database, keyring: Keyring, tenant: UUID, make_voice: MakeVoice
) -> None:
    """Forgetting works at once; without it the entry expires."""
    clock = _Time()
    first, second = await make_voice(tenant, embedding=RAW), await make_voice(tenant, embedding=RAW)
    cache = EmbeddingCache(database, keyring, clock)
    for voice in (first, second):
        await cache.get(tenant, voice, 1)
        async with database.transaction(tenant=tenant) as connection:
            assert await begin_deletion(connection, tenant, voice)
    cache.forget(first)
    with pytest.raises(VoiceUnavailable):
        await cache.get(tenant, first, 1)
    clock.now = TTL_S + 1
    with pytest.raises(VoiceUnavailable):
        await cache.get(tenant, second, 1)


async def test_the_tombstone_of_a_voice_outlives_what_is_kept_of_it(settings: Settings) -> None:
    """It stands twice as long as an embedding may be in a worker's memory."""
    redis, voice = connect(settings.redis_url), uuid4()
    await silence_voice(redis, voice)
    assert await redis.ttl(silenced_key(voice)) > 2 * TTL_S - 10
    await redis.aclose()


async def test_the_cache_is_bounded(database: Database, keyring: Keyring, tenant: UUID, make_voice: MakeVoice) -> None:
    """The voice that was not used for longest leaves first."""
    clock = _Time()
    cache = EmbeddingCache(database, keyring, clock)
    voice = await make_voice(tenant, embedding=RAW)
    await cache.get(tenant, voice, 1)
    cache._kept |= {(tenant, uuid4(), 1): (TTL_S, VECTOR) for _ in range(CAPACITY)}
    other = await make_voice(tenant, embedding=RAW)
    await cache.get(tenant, other, 1)
    assert len(cache._kept) == CAPACITY
    assert (tenant, voice, 1) not in cache._kept


class _Held(EmbeddingCache):
    """A cache whose look-ups wait, as with a slow Postgres."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.asked, self.released = asyncio.Event(), asyncio.Event()

    async def _load(self, key: Key) -> bytes | None:
        raw = await super()._load(key)
        self.asked.set()
        await self.released.wait()
        return raw


async def test_a_voice_that_falls_silent_while_it_is_fetched_is_not_given_out(
    database: Database, keyring: Keyring, tenant: UUID, make_voice: MakeVoice
) -> None:
    """What was read before the deletion and arrives after it is neither spoken with nor kept."""
    voice = await make_voice(tenant, embedding=RAW)
    cache = _Held(database, keyring)
    fetching = asyncio.create_task(cache.get(tenant, voice, 1))
    await cache.asked.wait()
    cache.forget(voice)
    cache.released.set()
    with pytest.raises(VoiceUnavailable):
        await fetching
    assert cache._kept == {}


async def test_a_voice_that_is_fetched_while_all_are_dropped_is_used_and_not_kept(
    database: Database, keyring: Keyring, tenant: UUID, make_voice: MakeVoice
) -> None:
    """With the connection to Redis something may have been missed; the next sentence looks it up again."""
    voice = await make_voice(tenant, embedding=RAW)
    cache = _Held(database, keyring)
    fetching = asyncio.create_task(cache.get(tenant, voice, 1))
    await cache.asked.wait()
    cache.clear()
    cache.released.set()
    assert np.array_equal(await fetching, VECTOR)
    assert cache._kept == {}
