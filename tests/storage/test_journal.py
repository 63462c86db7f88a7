"""The append-only file of Redis, which repeats every text that was ever queued until it is written anew."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from redis.asyncio import Redis

from storage.redis import connect
from storage.settings import Settings
from storage.streams.leftovers import rewrite_journal
from tests.conftest import wait_until
from timbrelay.stack.servers import Servers

SLOW_US = 200_000
"""A key; so rewriting takes seconds."""
TEXT = b"what somebody had said an hour ago"


def _read(servers: Servers) -> bytes:
    assert servers.postgres is not None
    folder: Path = servers.postgres.folder.parent / "valkey" / "appendonlydir"
    return b"".join(path.read_bytes() for path in folder.glob("*"))


async def _is_rewriting(redis: Redis) -> bool:
    persistence: Any = await redis.info("persistence")
    return bool(persistence["aof_rewrite_in_progress"] or persistence["aof_rewrite_scheduled"])


async def _finish(redis: Redis) -> None:
    async with asyncio.timeout(30):
        while await _is_rewriting(redis):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@asynccontextmanager
async def _rewriting(settings: Settings) -> AsyncIterator[Redis]:
    """A Valkey that has begun to write its file anew just now, with a text in it, and takes its time."""
    redis = connect(settings.redis_url)
    try:
        await _finish(redis)
        await redis.set("text", TEXT)
        for number in range(10):
            await redis.set(f"key {number}", "")
        await redis.config_set("rdb-key-save-delay", SLOW_US)
        await redis.bgrewriteaof()
        while not await _is_rewriting(redis):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        yield redis
    finally:
        await redis.config_set("rdb-key-save-delay", 0)
        await _finish(redis)
        await redis.aclose()


async def test_what_was_removed_while_the_file_was_being_rewritten_is_rewritten_once_more(
    settings: Settings, servers: Servers
) -> None:
    """The rewriting that is under way keeps what was there when it began: whoever removes it then has to wait."""
    voice = uuid4()
    async with _rewriting(settings) as redis:
        await redis.delete("text")
        assert not await rewrite_journal(redis, voice, 0.1)
        await redis.config_set("rdb-key-save-delay", 0)
        await _finish(redis)
        assert TEXT in _read(servers)
        assert await rewrite_journal(redis, voice, 0.1)
        await _finish(redis)
        wait_until(lambda: TEXT not in _read(servers))


async def test_one_rewriting_serves_all_who_waited_for_it(settings: Settings) -> None:
    """Each of those who came while one was under way is done with the next, whoever began it."""
    voices = [uuid4() for _ in range(3)]
    async with _rewriting(settings) as redis:
        assert [await rewrite_journal(redis, voice, 0.1) for voice in voices] == [False] * 3
        await redis.config_set("rdb-key-save-delay", 0)
        await _finish(redis)
        before: Any = await redis.info("persistence")
        assert [await rewrite_journal(redis, voice, 0.1) for voice in voices] == [True] * 3
        await _finish(redis)
        after: Any = await redis.info("persistence")
        assert after["aof_rewrites"] == before["aof_rewrites"] + 1
