"""storage.streams.speech_log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from redis.asyncio import Redis

from storage.redis import SPEECH_EPOCH, SPEECH_LOGS, connect, speech_log_key
from storage.settings import Settings
from storage.streams.speech_log import (
    MAX_LENGTH,
    Mark,
    Spoken,
    list_speakers,
    note_spoken,
    read_spoken,
    trim_spoken,
)

TENANT, VOICE, KEY = uuid4(), uuid4(), uuid4()


def make_spoken(context: str, tenant: UUID = TENANT, **changed: object) -> Spoken:
    spoken = Spoken(tenant, VOICE, 1, KEY, "127.0.0.1", context, 2, 40, 3_200, "ab" * 32, 1_800_000_000_000)
    return replace(spoken, **changed)  # type: ignore[arg-type]


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[Redis]:
    opened = connect(settings.redis_url)
    yield opened
    await opened.aclose()


async def read_all(client: Redis, after: Mark, limit: int = 100) -> tuple[list[str], Mark]:
    batch = await read_spoken(client, TENANT, after, limit)
    return [spoken.context for spoken in batch.entries], batch.mark


async def test_what_is_noted_is_read_in_order_and_whole(client: Redis) -> None:
    """Every field comes back as it was noted, oldest first, and the mark leads on to the next batch."""
    noted = [make_spoken(f"relay:{number}", audio_ms=number) for number in range(5)]
    for spoken in noted:
        await note_spoken(client, spoken)
    first = await read_spoken(client, TENANT, Mark(), 3)
    second = await read_spoken(client, TENANT, Mark.parse(str(first.mark)), 3)
    assert [*first.entries, *second.entries] == noted
    assert (await read_spoken(client, TENANT, second.mark, 3)).entries == ()


async def test_a_context_noted_twice_counts_once(client: Redis) -> None:
    """A relay that does not know whether its note arrived sends it again, and does no harm."""
    for _ in range(3):
        await note_spoken(client, make_spoken("relay:1"))
    assert (await read_all(client, Mark()))[0] == ["relay:1"]


async def test_a_tenants_log_holds_nothing_of_another(client: Redis) -> None:
    """Each has its own, and who has something in it is known."""
    other = uuid4()
    await note_spoken(client, make_spoken("relay:1"))
    await note_spoken(client, make_spoken("relay:2", tenant=other))
    assert (await read_all(client, Mark()))[0] == ["relay:1"]
    assert set(await list_speakers(client)) == {TENANT, other}


async def test_what_was_accounted_for_is_dropped(client: Redis) -> None:
    """Only that: what came later stays, and a tenant with an empty log is no longer looked at."""
    await note_spoken(client, make_spoken("relay:1"))
    _, mark = await read_all(client, Mark())
    await note_spoken(client, make_spoken("relay:2"))
    await trim_spoken(client, TENANT, mark)
    contexts, mark = await read_all(client, Mark())
    assert contexts == ["relay:2"]
    assert await list_speakers(client) == [TENANT]
    await trim_spoken(client, TENANT, mark)
    assert await list_speakers(client) == []


async def test_ids_that_start_again_lower_are_read_from_the_beginning(client: Redis) -> None:
    """A mark of a Redis that was emptied since says nothing about what is in it now."""
    await note_spoken(client, make_spoken("relay:1"))
    _, mark = await read_all(client, Mark())
    late = Mark(mark.epoch, "9999999999999-0")
    await client.flushall()
    await note_spoken(client, make_spoken("relay:2"))
    contexts, after = await read_all(client, late)
    assert contexts == ["relay:2"]
    assert after.epoch != late.epoch


async def test_an_old_mark_drops_nothing_of_an_emptied_redis(client: Redis) -> None:
    """Whoever was about to trim when Redis was emptied trims nothing."""
    await note_spoken(client, make_spoken("relay:1"))
    _, mark = await read_all(client, Mark())
    await client.flushall()
    await note_spoken(client, make_spoken("relay:2"))
    await trim_spoken(client, TENANT, Mark(mark.epoch, "9999999999999-0"))
    assert (await read_all(client, Mark()))[0] == ["relay:2"]


async def test_a_log_that_lost_its_end_and_whose_clock_went_back_loses_nothing_more(client: Redis) -> None:
    """Where Redis gives lower ids than the mark within one life of its data, the next look puts that right."""
    await note_spoken(client, make_spoken("relay:1"))
    _, mark = await read_all(client, Mark())
    ahead = Mark(mark.epoch, "9999999999999-0")
    await read_all(client, ahead)
    await note_spoken(client, make_spoken("relay:2"))
    assert (await read_all(client, ahead))[0] == ["relay:2"]


async def test_an_entry_that_cannot_be_read_is_counted_and_passed_over(client: Redis) -> None:
    """One of another format, another tenant or with a count below zero keeps nothing from those behind it."""
    await note_spoken(client, make_spoken("relay:1"))
    await client.xadd(speech_log_key(TENANT), {"v": "2"})
    rows: Any = await client.xrange(speech_log_key(TENANT), count=1)
    changes: tuple[dict[Any, Any], ...] = ({b"tenant": str(uuid4())}, {b"characters": "-1"}, {b"voice": "nobody"})
    for changed in changes:
        await client.xadd(speech_log_key(TENANT), {**rows[0][1], **changed})
    await note_spoken(client, make_spoken("relay:2"))
    batch = await read_spoken(client, TENANT, Mark(), 100)
    assert ([spoken.context for spoken in batch.entries], batch.malformed) == (["relay:1", "relay:2"], 4)


async def test_a_log_that_nobody_reads_has_a_bound(client: Redis) -> None:
    """The oldest entries go, and how long the log is says so."""
    async with client.pipeline(transaction=False) as pipeline:
        for _ in range(MAX_LENGTH + 500):
            pipeline.xadd(speech_log_key(TENANT), {"v": "1"})
        await pipeline.execute()
    await note_spoken(client, make_spoken("relay:1"))
    length = (await read_spoken(client, TENANT, Mark(), 1)).length
    assert MAX_LENGTH <= length < MAX_LENGTH + 200


async def test_the_log_holds_ids_counts_and_a_hash(client: Redis) -> None:
    """Everything in Redis after a note is named in it; no field could hold a text."""
    await note_spoken(client, make_spoken("relay:1"))
    assert set(await client.keys("*")) == {
        SPEECH_EPOCH.encode(),
        SPEECH_LOGS.encode(),
        speech_log_key(TENANT).encode(),
        b"timbrelay:noted:relay:1",
    }
    rows: Any = await client.xrange(speech_log_key(TENANT))
    assert {name.decode() for name in rows[0][1]} == {"v", *Spoken.__slots__}
