"""What was tried, and how often: a recording that ends its process must not do so for ever."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from redis.asyncio import Redis

from storage.redis import sent_again_key, translated, tries_key

_KEPT_S = 86_400


async def count_try(redis: Redis, voice: UUID, version: int) -> int:
    """Count one more try at a version; how many there were within a day. Raises ServerUnavailable."""
    key = tries_key(voice, version)
    async with translated(), redis.pipeline(transaction=True) as pipeline:
        pipeline.incr(key)
        pipeline.expire(key, _KEPT_S)
        replies: Any = await pipeline.execute()
    return int(replies[0])


async def discount_try(redis: Redis, voice: UUID, version: int) -> None:
    """A try that failed for no fault of the recording does not count; raises ServerUnavailable."""
    async with translated():
        await redis.decr(tries_key(voice, version))


async def may_send_again(redis: Redis, work: str, within_s: int) -> bool:
    """Whether this piece of work was not sent again within that time; from now on it was. Raises ServerUnavailable."""
    async with translated():
        return bool(await redis.set(sent_again_key(work), b"1", nx=True, ex=within_s))
