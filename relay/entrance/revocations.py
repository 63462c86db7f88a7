"""What must end at once although its connection is open: revoked keys, and voices that may not be heard any more.

One listener a process for each. A broadcast may be missed (Redis away, a connection that came in between), so whenever
something may have been, the keys of all open connections are looked up in one query, and once a minute in any case;
the voices in use are looked for among the tombstones. What is heard of keys is also told to those who remember them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import datetime
from typing import Protocol, TypeVar
from uuid import UUID

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from relay import metrics
from relay.cancellation import end, is_cancelled
from relay.entrance.known_keys import KnownKeys
from storage.database import Database, bounded
from storage.errors import ServerUnavailable
from storage.redis import silenced_key, translated
from storage.streams.broadcasts import Revocations, Silence, Silences
from storage.tenancy.api_keys import Deed, find_ends

log = structlog.get_logger()

REVOKED = "the API key is revoked or expired, or its tenant suspended"
CHECK_EVERY_S = 60.0
RETRY_S = 0.2
_BATCH = 500

News = TypeVar("News")


class Watched(Protocol):
    """An open connection, as the watch sees it."""

    expires_at: datetime | None
    """When its key opens nothing any more; the connection ends itself then, and is told when that has changed."""

    @property
    def key_id(self) -> UUID:
        """The key that opened it."""

    @property
    def tenant(self) -> UUID:
        """Whose it is."""

    @property
    def voices(self) -> frozenset[UUID]:
        """The voices of its open contexts."""

    def cut_off(self, reason: str) -> None:
        """End it now; must not block."""

    def silence(self, voice: UUID) -> None:
        """End its contexts that speak with this voice; must not block."""


class Watch:
    """Knows every open connection of this process; `run` hears of revocations and silences for them."""

    def __init__(
        self, redis: Redis, database: Database, known: KnownKeys, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._redis = redis
        self._database = database
        self._known = known
        self._clock = clock
        self._connections: set[Watched] = set()
        self._news_at = clock()
        self._doubt = asyncio.Event()

    def join(self, connection: Watched, authenticated_at: float) -> None:
        """Watch a connection whose key was looked up no earlier than at this time of the clock."""
        self._connections.add(connection)
        if authenticated_at <= self._news_at:
            self._doubt.set()

    def leave(self, connection: Watched) -> None:
        """It has ended."""
        self._connections.discard(connection)

    async def run(self) -> None:
        """Listen and look until cancelled."""
        tasks = [
            asyncio.create_task(self._hear(Revocations(self._redis).listen, self._hear_revocation)),
            asyncio.create_task(self._hear(Silences(self._redis).listen, self._hear_silence)),
            asyncio.create_task(self._check()),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await end(tasks)

    async def _hear(
        self, listen: Callable[[], AsyncGenerator[News | None, None]], obey: Callable[[News | None], None]
    ) -> None:
        """For ever; after a loss of Redis, anew. One line in the log for each time it goes away."""
        broken = False
        while not is_cancelled():
            try:
                async with aclosing(listen()) as broadcast:
                    async for news in broadcast:
                        broken = False
                        obey(news)
            except (ServerUnavailable, RedisError) as error:
                if not broken:
                    log.warning("a broadcast is not heard", reason=str(error))
                broken = True
            await asyncio.sleep(RETRY_S)

    def _hear_revocation(self, key_or_tenant: UUID | None) -> None:
        """None: it listens from now on, and something may have been missed.

        A tenant's id stands for all its keys. After any news all are looked up: a key that was rotated expires sooner.
        """
        self._news_at = self._clock()
        self._known.hear(key_or_tenant)
        self._doubt.set()
        for connection in list(self._connections):
            if key_or_tenant in (connection.key_id, connection.tenant):
                self._cut_off(connection)

    def _hear_silence(self, silence: Silence | None) -> None:
        if silence is None:
            self._doubt.set()
            return
        for connection in list(self._connections):
            if silence.voice in connection.voices:
                connection.silence(silence.voice)

    async def _check(self) -> None:
        broken = False
        while not is_cancelled():
            try:
                async with asyncio.timeout(CHECK_EVERY_S):
                    await self._doubt.wait()
            except TimeoutError:
                pass
            self._doubt.clear()
            try:
                await self._check_keys()
                await self._check_voices()
                broken = False
            except (ServerUnavailable, RedisError) as error:
                if not broken:
                    log.warning("open connections could not be checked", reason=str(error))
                broken = True
                await asyncio.sleep(RETRY_S)
                self._doubt.set()

    async def _check_keys(self) -> None:
        asked = {connection.key_id for connection in self._connections}
        if not asked:
            return
        ends = await bounded(find_ends(self._database, asked, Deed.SPEAK))
        for connection in list(self._connections):
            if connection.key_id in ends:
                connection.expires_at = ends[connection.key_id]
            elif connection.key_id in asked:
                self._cut_off(connection)

    async def _check_voices(self) -> None:
        voices = sorted({voice for connection in self._connections for voice in connection.voices})
        for start in range(0, len(voices), _BATCH):
            batch = voices[start : start + _BATCH]
            async with translated():
                found = await self._redis.mget([silenced_key(voice) for voice in batch])
            for voice, tombstone in zip(batch, found, strict=True):
                if tombstone is not None:
                    self._hear_silence(Silence(voice, ""))

    def _cut_off(self, connection: Watched) -> None:
        metrics.CUT_OFF.inc()
        connection.cut_off(REVOKED)
