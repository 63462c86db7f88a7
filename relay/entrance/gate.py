"""What stands between the doors and the service: rates, quotas, the watch over keys and voices, and the record.

One of each a process; `run` is what they do beside the connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from relay.cancellation import end
from relay.clock import SystemClock
from relay.entrance.quotas import Quotas
from relay.entrance.rate_limits import RateLimiter
from relay.entrance.revocations import Watch
from relay.speaking.casting import Casting
from relay.speaking.speech_notes import LAST_FLUSH_S, SpeechNotes
from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.redis import connect
from storage.settings import Settings

_RATE_CONNECTIONS = 4
_OTHER_CONNECTIONS = 6
"""Two that listen, and some for quotas, notes and tombstones."""
_LAST_WORDS_S = LAST_FLUSH_S + 1.0


@dataclass(frozen=True, slots=True)
class Gate:
    """The parts, for whoever needs one."""

    limiter: RateLimiter
    quotas: Quotas
    watch: Watch
    notes: SpeechNotes
    casting: Casting

    @classmethod
    @asynccontextmanager
    async def opened(cls, settings: Settings, database: Database, keyring: Keyring) -> AsyncIterator[Gate]:
        """A gate with connections to Redis of its own, so that a flood of requests delays no audio, nor the watch."""
        rates = connect(settings.redis_url, connections=_RATE_CONNECTIONS)
        redis = connect(settings.redis_url, connections=_OTHER_CONNECTIONS)
        try:
            limiter = RateLimiter(rates, settings.max_wrong_keys_per_minute)
            yield cls(
                limiter,
                Quotas(redis, SystemClock()),
                Watch(redis, database, limiter.known),
                SpeechNotes(redis),
                Casting(database, keyring),
            )
        finally:
            await rates.aclose()
            await redis.aclose()

    async def run(self) -> None:
        """Share, listen and write until cancelled; then write what is left."""
        tasks = [asyncio.create_task(part()) for part in (self.quotas.run, self.watch.run, self.notes.run)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=_LAST_WORDS_S)
            await end(tasks)
