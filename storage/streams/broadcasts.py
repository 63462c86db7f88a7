"""What every process has to hear at once, over Redis' pub/sub: voices that fall silent, API keys that are revoked.

A broadcast reaches whoever listens now, and pub/sub does not say who did (Redis, "Pub/Sub": at most once). So a
silenced voice also has a tombstone, which a worker meets with its next chunk, and each worker that has obeyed puts its
name into a set; whoever listens anew is told so, for it may have missed some.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from redis.asyncio import Redis

from storage.redis import BLOCK_MS, REVOCATIONS, SILENCES, acknowledged_key, silenced_key, translated
from storage.streams.presence import read_workers

EMBEDDING_TTL_S = 300
"""The longest that a worker keeps an embedding: even one that hears nothing has forgotten it by then."""
TOMBSTONE_TTL_S = 2 * EMBEDDING_TTL_S
"""So that no silenced voice is spoken with after its tombstone is gone: even one that was looked up while it was being
silenced was looked up within seconds of its tombstone."""
BATCH = 500
_TOKEN_BYTES = 8
_FIRST_POLL_S = 0.01
_LAST_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Silence:
    """A voice that must not be heard any more."""

    voice: UUID
    token: str
    """Names this tombstone: what was acknowledged of an earlier one says nothing about it."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Which workers have obeyed a silence, and which of those that are present have not."""

    heard: frozenset[str]
    missing: frozenset[str]


async def silence_voice(redis: Redis, voice: UUID) -> None:
    """Put up the tombstone of a voice and tell every worker: they stop speaking with it and forget it at once, and
    those that do not hear it, with their next chunk. Doing it again tells them again. Raises ServerUnavailable."""
    await silence_voices(redis, [voice])


async def silence_voices(redis: Redis, voices: Sequence[UUID]) -> None:
    """The same for any number of voices, BATCH to a round trip."""
    for start in range(0, len(voices), BATCH):
        batch = voices[start : start + BATCH]
        tokens = await _put_up(redis, batch)
        async with translated(), redis.pipeline(transaction=False) as pipeline:
            for voice, token in zip(batch, tokens, strict=True):
                pipeline.publish(SILENCES, f"{voice} {token}")
            await pipeline.execute()


async def unsilence_voice(redis: Redis, voice: UUID) -> None:
    """Take the tombstone down: the voice may be looked up again. Raises ServerUnavailable."""
    async with translated():
        await redis.delete(silenced_key(voice))


async def acknowledge_silence(redis: Redis, silence: Silence, worker: str) -> None:
    """Say that this worker holds nothing of the voice and speaks with it no more; raises ServerUnavailable."""
    key = acknowledged_key(silence.voice, silence.token)
    async with translated(), redis.pipeline(transaction=True) as pipeline:
        pipeline.sadd(key, worker)
        pipeline.expire(key, TOMBSTONE_TTL_S)
        await pipeline.execute()


async def await_acknowledgements(redis: Redis, voice: UUID, within_s: float) -> Acknowledged:
    """Wait until every worker that is present has obeyed, at most `within_s`; raises ServerUnavailable.

    Without a tombstone nobody has obeyed anything. A worker whose sign of life has ended is not waited for.
    """
    loop = asyncio.get_running_loop()
    end, poll_s = loop.time() + within_s, _FIRST_POLL_S
    while True:
        acknowledged = await _read_acknowledged(redis, voice)
        left = end - loop.time()
        if not acknowledged.missing or left <= 0:
            return acknowledged
        await asyncio.sleep(min(poll_s, left))
        poll_s = min(poll_s * 1.5, _LAST_POLL_S)


async def revoke_key(redis: Redis, key_id: UUID) -> None:
    """Tell every relay that an API key is revoked, so that it closes what the key opened; raises ServerUnavailable."""
    async with translated():
        await redis.publish(REVOCATIONS, str(key_id))


class Silences:
    """The broadcast of silenced voices, on a connection of its own."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def listen(self) -> AsyncGenerator[Silence | None, None]:
        """Yields None once it listens, then every voice that is silenced; raises ServerUnavailable when it hears no
        more, so that whoever listens knows that it may have missed some."""
        async with aclosing(_listen(self._redis, SILENCES)) as texts:
            async for text in texts:
                if text is None:
                    yield None
                elif (silence := _read_silence(text)) is not None:
                    yield silence


class Revocations:
    """The broadcast of revoked API keys, on a connection of its own."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def listen(self) -> AsyncGenerator[UUID | None, None]:
        """Yields None once it listens (check every key that is in use), then the id of every key that is revoked;
        raises ServerUnavailable when it hears no more."""
        async with aclosing(_listen(self._redis, REVOCATIONS)) as texts:
            async for text in texts:
                if text is None:
                    yield None
                elif (key_id := _read_id(text)) is not None:
                    yield key_id


async def _put_up(redis: Redis, voices: Sequence[UUID]) -> list[str]:
    """The tokens of the voices' tombstones: of those that stand, and of those that are made now."""
    async with translated(), redis.pipeline(transaction=True) as pipeline:
        for voice in voices:
            key = silenced_key(voice)
            pipeline.set(key, secrets.token_hex(_TOKEN_BYTES), nx=True)
            pipeline.expire(key, TOMBSTONE_TTL_S)
            pipeline.get(key)
        replies: Any = await pipeline.execute()
    return [token.decode() for token in replies[2::3]]


async def _read_acknowledged(redis: Redis, voice: UUID) -> Acknowledged:
    present = frozenset(await read_workers(redis))
    async with translated():
        token: Any = await redis.get(silenced_key(voice))
        names: Any = await redis.smembers(acknowledged_key(voice, token.decode())) if token else ()
    heard = frozenset(name.decode() for name in names)
    return Acknowledged(heard, present - heard)


async def _listen(redis: Redis, channel: str) -> AsyncGenerator[str | None, None]:
    async with translated(), redis.pubsub() as subscription:
        await subscription.subscribe(channel)
        yield None
        while True:
            message: Any = await subscription.get_message(ignore_subscribe_messages=True, timeout=BLOCK_MS / 1000)
            if message is None:
                await subscription.ping()
            else:
                yield message["data"].decode(errors="replace")


def _read_silence(text: str) -> Silence | None:
    voice, _, token = text.partition(" ")
    found = _read_id(voice)
    return Silence(found, token) if found is not None and token else None


def _read_id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
