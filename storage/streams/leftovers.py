"""What Redis holds of a voice beside the streams of speech: set-aside jobs, messages of Celery, the log of speech."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from typing import Any
from uuid import UUID

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from storage.cold_jobs import KEY_PREFIX
from storage.redis import DEAD_LETTER, journal_key, speech_log_key, translated

_UNACKNOWLEDGED = f"{KEY_PREFIX}unacked"
_PAGE = 500
_ENTRIES_LIMIT = 100_000
_WAITED_S = 86_400
_POLL_S = 0.02


async def strip_dead_letter(redis: Redis, voice: UUID) -> int:
    """Take the voice's jobs out of the dead letter, which has no group whose count could suffer.

    Raises ServerUnavailable.
    """
    async with translated():
        found = await _find(redis, DEAD_LETTER, voice)
        return int(await redis.xdel(DEAD_LETTER, *found)) if found else 0


async def count_spoken(redis: Redis, tenant: UUID, voice: UUID) -> int:
    """How many contexts of the voice wait in the log of speech for the roll-up; raises ServerUnavailable."""
    async with translated():
        return len(await _find(redis, speech_log_key(tenant), voice))


async def strip_queues(redis: Redis, voice: UUID) -> tuple[int, int]:
    """Take the voice's tasks out of Celery's queues.

    Returns how many were taken out, and how many stay because some process has taken them and not acknowledged: they
    hold ids alone, and find nothing to do. Raises ServerUnavailable.
    """
    taken = 0
    async with translated():
        async for key in redis.scan_iter(match=f"{KEY_PREFIX}*", count=1000, _type="LIST"):
            messages: Any = await redis.lrange(key, 0, _ENTRIES_LIMIT)
            for message in messages:
                if _names(message, voice):
                    taken += await redis.lrem(key, 1, message)
        left = 0
        async for _, message in redis.hscan_iter(_UNACKNOWLEDGED, count=1000):
            left += _names(message, voice)
    return taken, left


async def _find(redis: Redis, stream: str, voice: UUID) -> list[bytes]:
    found: list[bytes] = []
    after, seen = b"0-0", 0
    while seen < _ENTRIES_LIMIT:
        rows: Any = await redis.xrange(stream, min=b"(" + after, max="+", count=_PAGE)
        found += [entry for entry, fields in rows if fields.get(b"voice") == str(voice).encode()]
        if len(rows) < _PAGE:
            break
        after, seen = rows[-1][0], seen + len(rows)
    return found


async def rewrite_journal(redis: Redis, voice: UUID, within_s: float) -> bool:
    """Have the server write its append-only file anew, since the present one repeats every text that was ever queued.

    False when it is at it already, and for longer than `within_s`: that rewriting may have begun before the voice's
    texts were removed, and keeps them. Asked again, it is satisfied by any rewriting that was begun after that. True as
    well where the server keeps no such file, or does not let us ask. Raises ServerUnavailable.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + within_s
    async with translated():
        try:
            while not await _rewrite(redis, journal_key(voice)):
                if loop.time() >= end:
                    return False
                await asyncio.sleep(_POLL_S)
        except ResponseError:
            pass
    return True


async def _rewrite(redis: Redis, key: str) -> bool:
    persistence: Any = await redis.info("persistence")
    if not persistence.get("aof_enabled"):
        return True
    begun = int(persistence.get("aof_rewrites", 0))
    if persistence.get("aof_rewrite_in_progress") or persistence.get("aof_rewrite_scheduled"):
        waited_for: Any = await redis.set(key, begun, ex=_WAITED_S, nx=True, get=True)
        return waited_for is not None and int(waited_for) < begun
    waited_for = await redis.getdel(key)
    if waited_for is None or int(waited_for) >= begun:
        await redis.bgrewriteaof()
    return True


def _names(message: bytes, voice: UUID) -> bool:
    """Whether a message of Celery (protocol 2 over kombu's Redis transport) has the voice among its arguments."""
    wanted = str(voice).encode()
    if wanted in message:
        return True
    try:
        content = json.loads(message)
        # An unacknowledged one stands with its exchange and routing key.
        body = (content[0] if isinstance(content, list) else content)["body"]
        return wanted in base64.b64decode(body, validate=True)
    except (ValueError, KeyError, TypeError, IndexError, binascii.Error):
        return False
