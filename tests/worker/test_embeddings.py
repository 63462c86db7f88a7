"""worker.embeddings, over a real Postgres."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest

from storage.consents import Consent, grant_consent
from storage.database import Database
from storage.keyring import RootKey
from storage.settings import Settings
from storage.voices import complete_enrolment, create_voice, delete_voice
from worker.embeddings import CAPACITY, TTL_S, EmbeddingCache
from worker.errors import VoiceUnavailable

MakeTenant = Callable[[str], Awaitable[Any]]
VECTOR = np.linspace(0, 1, 256, dtype=np.float32)


class _Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def database(settings: Settings) -> AsyncIterator[Database]:
    opened = Database.for_service(settings)
    yield opened
    await opened.close()


@pytest.fixture
def root(settings: Settings) -> RootKey:
    return RootKey.from_settings(settings)


@pytest.fixture
async def tenant(make_tenant: MakeTenant) -> UUID:
    made: UUID = (await make_tenant("acme")).id
    return made


async def _voice(database: Database, root: RootKey, tenant: UUID) -> UUID:
    consent, _ = await grant_consent(database, root, tenant, Consent("A. Person", "I agree."))
    voice = await create_voice(database, root, tenant, name="demo", consent=consent, upload=b"upload")
    assert voice is not None
    embedding = VECTOR.astype("<f4").tobytes()
    await complete_enrolment(
        database, root, tenant, voice.id, 1, recording=b"recording", embedding=embedding, duration_s=6.0
    )
    return voice.id


async def test_an_embedding_is_what_was_stored(database: Database, root: RootKey, tenant: UUID) -> None:
    """256 float32, bit for bit."""
    voice = await _voice(database, root, tenant)
    cache = EmbeddingCache(database, root)
    assert np.array_equal(await cache.get(tenant, voice, 1), VECTOR)


async def test_another_tenant_does_not_get_it_from_the_cache(
    database: Database, root: RootKey, tenant: UUID, make_tenant: MakeTenant
) -> None:
    """The tenant is part of the key: a warm cache is no way around the fence."""
    voice = await _voice(database, root, tenant)
    cache = EmbeddingCache(database, root)
    await cache.get(tenant, voice, 1)
    with pytest.raises(VoiceUnavailable):
        await cache.get((await make_tenant("other")).id, voice, 1)


async def test_an_unknown_voice_or_version_is_unavailable(database: Database, root: RootKey, tenant: UUID) -> None:
    """No other voice takes its place."""
    voice = await _voice(database, root, tenant)
    cache = EmbeddingCache(database, root)
    for wanted, version in ((uuid4(), 1), (voice, 2)):
        with pytest.raises(VoiceUnavailable):
            await cache.get(tenant, wanted, version)


async def test_a_deleted_voice_is_gone_when_it_is_forgotten_and_at_the_latest_after_its_time(
    database: Database, root: RootKey, tenant: UUID
) -> None:
    """Forgetting works at once; without it the entry expires."""
    clock = _Time()
    first, second = await _voice(database, root, tenant), await _voice(database, root, tenant)
    cache = EmbeddingCache(database, root, clock)
    for voice in (first, second):
        await cache.get(tenant, voice, 1)
        assert await delete_voice(database, tenant, voice)
    cache.forget(first)
    with pytest.raises(VoiceUnavailable):
        await cache.get(tenant, first, 1)
    clock.now = TTL_S + 1
    with pytest.raises(VoiceUnavailable):
        await cache.get(tenant, second, 1)


async def test_the_cache_is_bounded(database: Database, root: RootKey, tenant: UUID) -> None:
    """The voice that was not used for longest leaves first."""
    clock = _Time()
    cache = EmbeddingCache(database, root, clock)
    voice = await _voice(database, root, tenant)
    await cache.get(tenant, voice, 1)
    cache._kept |= {(tenant, uuid4(), 1): (TTL_S, VECTOR) for _ in range(CAPACITY)}
    other = await _voice(database, root, tenant)
    await cache.get(tenant, other, 1)
    assert len(cache._kept) == CAPACITY
    assert (tenant, voice, 1) not in cache._kept
