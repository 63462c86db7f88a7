"""storage.streams.broadcasts, over a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any
from uuid import UUID, uuid4

import pytest
from redis.asyncio import Redis

from storage.redis import REVOCATIONS, SILENCES, acknowledged_key, connect, silenced_key
from storage.settings import Settings
from storage.streams.broadcasts import (
    BATCH,
    TOMBSTONE_TTL_S,
    Acknowledged,
    Revocations,
    Silence,
    Silences,
    acknowledge_silence,
    await_acknowledgements,
    revoke_key,
    silence_voice,
    silence_voices,
    unsilence_voice,
)
from storage.streams.presence import announce_worker, withdraw_worker


@pytest.fixture
async def redis(settings: Settings) -> AsyncIterator[Redis]:
    client = connect(settings.redis_url)
    yield client
    await client.aclose()


class _Worker:
    """A worker that obeys while it lives, on a connection of its own."""

    def __init__(self, redis: Redis, name: str) -> None:
        self.name = name
        self.heard: list[Silence] = []
        self._redis = redis
        self._listening = asyncio.Event()
        self._task = asyncio.create_task(self._obey())

    async def begin(self) -> None:
        await announce_worker(self._redis, self.name)
        async with asyncio.timeout(20):
            await self._listening.wait()

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _obey(self) -> None:
        async for silence in Silences(self._redis).listen():
            self._listening.set()
            if silence is not None:
                self.heard.append(silence)
                await acknowledge_silence(self._redis, silence, self.name)


async def _begin(redis: Redis, *names: str) -> list[_Worker]:
    workers = [_Worker(redis, name) for name in names]
    for worker in workers:
        await worker.begin()
    return workers


async def _token(redis: Redis, voice: UUID) -> str:
    raw: Any = await redis.get(silenced_key(voice))
    return str(raw.decode())


async def test_every_worker_hears_of_a_silence_and_says_so(redis: Redis) -> None:
    """Whoever is present and obeys is known to have obeyed."""
    workers, voice = await _begin(redis, "a", "b"), uuid4()
    await silence_voice(redis, voice)
    assert await await_acknowledgements(redis, voice, 20.0) == Acknowledged(frozenset("ab"), frozenset())
    assert [silence.voice for worker in workers for silence in worker.heard] == [voice, voice]
    for worker in workers:
        await worker.end()


async def test_a_worker_that_does_not_obey_is_missing_until_its_sign_of_life_ends(redis: Redis) -> None:
    """It is named, and whoever waits is not held up for longer than asked."""
    (worker,), voice = await _begin(redis, "a"), uuid4()
    await announce_worker(redis, "stopped")
    await silence_voice(redis, voice)
    assert await await_acknowledgements(redis, voice, 0.3) == Acknowledged(frozenset("a"), frozenset({"stopped"}))
    await withdraw_worker(redis, "stopped")
    assert not (await await_acknowledgements(redis, voice, 0.3)).missing
    await worker.end()


async def test_what_was_acknowledged_of_an_earlier_silence_counts_for_nothing(redis: Redis) -> None:
    """A voice that was enabled in between may be in a memory again, whatever its first silence was answered."""
    await announce_worker(redis, "a")
    voice = uuid4()
    await silence_voice(redis, voice)
    first = Silence(voice, await _token(redis, voice))
    await acknowledge_silence(redis, first, "a")
    assert not (await await_acknowledgements(redis, voice, 0.0)).missing
    await unsilence_voice(redis, voice)
    assert await redis.exists(silenced_key(voice)) == 0
    assert (await await_acknowledgements(redis, voice, 0.0)).missing == {"a"}
    await silence_voice(redis, voice)
    await acknowledge_silence(redis, first, "a")
    assert (await await_acknowledgements(redis, voice, 0.0)).missing == {"a"}


async def test_to_say_it_again_keeps_what_was_acknowledged(redis: Redis) -> None:
    """A retry waits only for those that have not obeyed, and the tombstone stands for its whole time again."""
    (worker,), voice = await _begin(redis, "a"), uuid4()
    await silence_voice(redis, voice)
    await await_acknowledgements(redis, voice, 20.0)
    await redis.expire(silenced_key(voice), 5)
    await worker.end()
    await silence_voice(redis, voice)
    assert not (await await_acknowledgements(redis, voice, 0.0)).missing
    assert await redis.ttl(silenced_key(voice)) > TOMBSTONE_TTL_S - 10


async def test_tombstones_and_acknowledgements_expire(redis: Redis) -> None:
    """Nothing of it stays for good."""
    voice = uuid4()
    await silence_voice(redis, voice)
    token = await _token(redis, voice)
    await acknowledge_silence(redis, Silence(voice, token), "a")
    assert 0 < await redis.ttl(silenced_key(voice)) <= TOMBSTONE_TTL_S
    assert 0 < await redis.ttl(acknowledged_key(voice, token)) <= TOMBSTONE_TTL_S


async def test_any_number_of_voices_falls_silent_at_once(redis: Redis) -> None:
    """More than go into one round trip: each has its tombstone, and every worker hears of each."""
    (worker,), voices = await _begin(redis, "a"), [uuid4() for _ in range(BATCH + 3)]
    await silence_voices(redis, voices)
    assert not (await await_acknowledgements(redis, voices[-1], 20.0)).missing
    assert [silence.voice for silence in worker.heard] == voices
    assert await redis.exists(*map(silenced_key, voices)) == len(voices)
    await worker.end()


async def test_relays_hear_of_revoked_keys_and_nonsense_tells_nobody_anything(redis: Redis) -> None:
    """None says that it listens from now on; then every id, in order."""
    keys = [uuid4(), uuid4()]
    async with asyncio.timeout(20), aclosing(Revocations(redis).listen()) as listening:
        assert await anext(listening) is None
        await redis.publish(REVOCATIONS, "nonsense \xff")
        for key_id in keys:
            await revoke_key(redis, key_id)
        assert [await anext(listening), await anext(listening)] == keys


async def test_nonsense_silences_nobody(redis: Redis) -> None:
    """A message without a token, or of no voice, is passed over."""
    voice = uuid4()
    async with asyncio.timeout(20), aclosing(Silences(redis).listen()) as listening:
        assert await anext(listening) is None
        for nonsense in ("nonsense \xff", str(voice), "x y"):
            await redis.publish(SILENCES, nonsense)
        await silence_voice(redis, voice)
        heard = await anext(listening)
    assert heard is not None
    assert heard.voice == voice
