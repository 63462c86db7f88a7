"""Which workers are there with a warm model, so that a relay can say whether it is ready."""

from __future__ import annotations

from redis.asyncio import Redis

from storage.redis import translated, worker_key

WORKER_TTL_MS = 3000
_SCAN_COUNT = 100
_SCAN_LIMIT = 1000


async def announce_worker(redis: Redis, worker: str) -> None:
    """Say that this worker's model is warm; holds for WORKER_TTL_MS."""
    async with translated():
        await redis.set(worker_key(worker), b"1", px=WORKER_TTL_MS)


async def withdraw_worker(redis: Redis, worker: str) -> None:
    """Say that this worker takes no more jobs."""
    async with translated():
        await redis.delete(worker_key(worker))


async def count_workers(redis: Redis) -> int:
    """How many workers are there (counted up to a thousand)."""
    found = 0
    async with translated():
        async for _ in redis.scan_iter(match=worker_key("*"), count=_SCAN_COUNT):
            found += 1
            if found >= _SCAN_LIMIT:
                break
    return found
