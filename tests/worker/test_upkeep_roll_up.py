"""worker.upkeep.roll_up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from storage.database import Database
from storage.errors import ServerUnavailable
from storage.evidence.audit import lock, read_audit
from storage.evidence.chain import verify_chain
from storage.paging import Page
from storage.redis import speech_log_key
from storage.settings import Settings
from storage.streams.speech_log import Spoken, note_spoken
from storage.tenancy.usage import read_usage
from storage.voices.voices import find_voice
from tests.conftest import MakeTenant, MakeVoice
from worker.upkeep.roll_up import roll_up, sum_up
from worker.upkeep.rounds import Tools

ROOT = Path(__file__).resolve().parents[2]
MORNING = datetime(2026, 5, 4, 9, tzinfo=UTC)
ROLLING_UP = """
import asyncio, sys
from storage.cold_jobs import Duty, make_celery
from storage.settings import Settings
from worker.upkeep.schedule import Upkeep
settings = Settings.read()
upkeep = Upkeep(settings, make_celery(settings))
print("up", flush=True)
while True:
    asyncio.run(upkeep.do(Duty.ROLL_UP))
"""
KILLS = 5
END_WHOEVER_WAITS = """
SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
"""


def make_spoken(tenant: UUID, voice: UUID, *, at: datetime = MORNING, context: str = "", origin: str = "::1") -> Spoken:
    named = context or f"relay:{uuid4()}"
    milliseconds = int(at.timestamp() * 1000)
    return Spoken(tenant, voice, 1, uuid4(), origin, named, 2, 40, 3200, "ab" * 32, milliseconds)


async def read_sums(database: Database, tenant: UUID) -> dict[tuple[date, UUID], tuple[int, int, int, int]]:
    async with database.transaction(tenant=tenant) as connection:
        found = await read_usage(connection, tenant, date(2000, 1, 1), date(2100, 1, 1), page=Page(1000))
    return {(row.day, row.voice_id): (row.contexts, row.sentences, row.characters, row.audio_ms) for row in found.items}


async def count_acts(database: Database, tenant: UUID) -> int:
    async with database.transaction(tenant=tenant) as connection:
        assert (await verify_chain(connection, tenant)).sound
        return len(await read_audit(connection, tenant, action="voice.spoken", limit=1000))


async def test_what_was_spoken_becomes_usage_last_use_and_audit(
    tools: Tools, database: Database, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """A sum a voice and day, an entry a context with its counts and the hash of its text, and nothing left in Redis."""
    tenant = (await make_tenant("acme")).id
    voice = await make_voice(tenant, embedding=bytes(1024))
    later = datetime(2026, 12, 24, 1, tzinfo=UTC)
    notes = [make_spoken(tenant, voice), make_spoken(tenant, voice), make_spoken(tenant, voice, at=later)]
    for spoken in notes:
        await note_spoken(tools.redis, spoken)
    assert await roll_up(tools) == 3
    assert await read_sums(database, tenant) == {
        (MORNING.date(), voice): (2, 4, 80, 6400),
        (later.date(), voice): (1, 2, 40, 3200),
    }
    async with database.transaction(tenant=tenant) as connection:
        found = await find_voice(connection, tenant, voice)
        entries = await read_audit(connection, tenant, action="voice.spoken")
    assert found is not None and found.last_used_at == later
    assert [entry.actor for entry in entries] == [f"key:{spoken.key_id}" for spoken in notes]
    assert (entries[0].object_id, entries[0].origin, entries[0].at) == (str(voice), "::1", MORNING)
    assert entries[0].detail == {
        "context": notes[0].context,
        "version": 1,
        "sentences": 2,
        "characters": 40,
        "audio_ms": 3200,
        "text_hmac": "ab" * 32,
    }
    assert await tools.redis.xlen(speech_log_key(tenant)) == 0
    assert await roll_up(tools) == 0


async def test_any_number_at_once_count_each_context_once(
    tools: Tools, database: Database, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """Those who come second find the mark behind what the first one did."""
    tenant = (await make_tenant("acme")).id
    voice = await make_voice(tenant, embedding=bytes(1024))
    for _ in range(50):
        await note_spoken(tools.redis, make_spoken(tenant, voice))
    assert sum(await asyncio.gather(*(roll_up(tools) for _ in range(4)))) == 50
    assert await read_sums(database, tenant) == {(MORNING.date(), voice): (50, 100, 2000, 160_000)}
    assert await count_acts(database, tenant) == 50


async def test_a_context_that_is_noted_twice_counts_once(
    tools: Tools, database: Database, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """Also when the first note was rolled up before the second came."""
    tenant = (await make_tenant("acme")).id
    voice = await make_voice(tenant, embedding=bytes(1024))
    for _ in range(2):
        await note_spoken(tools.redis, make_spoken(tenant, voice, context="relay:1"))
        await roll_up(tools)
    assert await count_acts(database, tenant) == 1


async def test_killed_at_any_moment_it_counts_each_context_once(
    settings: Settings, tools: Tools, database: Database, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """Processes that roll up are killed again and again while contexts are noted; in the end the sums are right."""
    chance = random.Random(5)
    speakers = []
    for name in ("acme", "umbrella"):
        tenant = (await make_tenant(name)).id
        speakers.append((tenant, await make_voice(tenant, embedding=bytes(1024))))
    noted = {tenant: 0 for tenant, _ in speakers}
    for _ in range(KILLS):
        with _rolling_up(settings) as process:
            end = asyncio.get_running_loop().time() + chance.uniform(0.0, 0.4)
            while asyncio.get_running_loop().time() < end:
                tenant, voice = chance.choice(speakers)
                await note_spoken(tools.redis, make_spoken(tenant, voice))
                noted[tenant] += 1
            process.kill()
    await roll_up(tools)
    assert sum(noted.values()) > 100
    for tenant, voice in speakers:
        assert await read_sums(database, tenant) == {
            (MORNING.date(), voice): (noted[tenant], 2 * noted[tenant], 40 * noted[tenant], 3200 * noted[tenant])
        }
        assert await _count_all(database, tenant) == noted[tenant]


@contextlib.contextmanager
def _rolling_up(settings: Settings) -> Iterator[subprocess.Popen[str]]:
    """A process that rolls up without a pause, and is killed."""
    environment = {
        **os.environ,
        "DATABASE_URL": settings.database_url,
        "REDIS_URL": settings.redis_url,
        "TIMBRELAY_ROOT_KEY": settings.root_key.get_secret_value(),
    }
    command = [sys.executable, "-c", ROLLING_UP]
    with subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "up\n"
            yield process
        finally:
            process.kill()


async def _count_all(database: Database, tenant: UUID) -> int:
    count, after = 0, 0
    while True:
        async with database.transaction(tenant=tenant) as connection:
            found = await read_audit(connection, tenant, action="voice.spoken", after_sequence=after, limit=1000)
        if not found:
            return count
        count, after = count + len(found), found[-1].sequence


async def test_what_was_not_committed_is_counted_by_the_next(
    tools: Tools, database: Database, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """A connection that breaks after everything was written, but before it counts, leaves the log as it was."""
    tenant = (await make_tenant("acme")).id
    voice = await make_voice(tenant, embedding=bytes(1024))
    await note_spoken(tools.redis, make_spoken(tenant, voice))
    async with database.transaction(tenant=tenant) as connection:
        # Writing to the audit log is the last step of a roll-up.
        await lock(connection, f"audit log {tenant}")
        interrupted = asyncio.create_task(roll_up(tools))
        ended = False
        while not ended:
            ended = bool((await connection.execute(text(END_WHOEVER_WAITS))).scalar())
    with pytest.raises(ServerUnavailable):
        await interrupted
    assert await read_sums(database, tenant) == {}
    assert await roll_up(tools) == 1
    assert await read_sums(database, tenant) == {(MORNING.date(), voice): (1, 2, 40, 3200)}
    assert await count_acts(database, tenant) == 1


async def test_what_was_counted_and_not_dropped_is_not_counted_again(
    tools: Tools, database: Database, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """A roll-up that died before it trimmed the log, or a Redis that forgot the trimming, changes nothing."""
    tenant = (await make_tenant("acme")).id
    voice = await make_voice(tenant, embedding=bytes(1024))
    for _ in range(3):
        await note_spoken(tools.redis, make_spoken(tenant, voice))
    entries: Any = await tools.redis.xrange(speech_log_key(tenant))
    assert await roll_up(tools) == 3
    await tools.redis.delete(speech_log_key(tenant))
    for entry, fields in entries:
        await tools.redis.xadd(speech_log_key(tenant), fields, id=entry)
    await note_spoken(tools.redis, make_spoken(tenant, voice))
    assert await roll_up(tools) == 1
    assert await count_acts(database, tenant) == 4


async def test_an_emptied_redis_neither_repeats_nor_hides_anything(
    tools: Tools, database: Database, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """What was counted stays counted, and what is noted from then on counts, whatever ids Redis gives it."""
    tenant = (await make_tenant("acme")).id
    voice = await make_voice(tenant, embedding=bytes(1024))
    await note_spoken(tools.redis, make_spoken(tenant, voice))
    await tools.redis.xadd(speech_log_key(tenant), {"v": "0"}, id="9999999999999-1")
    assert await roll_up(tools) == 1
    await tools.redis.flushall()
    await note_spoken(tools.redis, make_spoken(tenant, voice))
    assert await roll_up(tools) == 1
    assert await count_acts(database, tenant) == 2


async def test_what_cannot_be_counted_holds_up_nobody_else(
    tools: Tools, database: Database, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """A tenant that there is not, and an entry that cannot be read, are left out; the others are counted."""
    tenant = (await make_tenant("acme")).id
    voice = await make_voice(tenant, embedding=bytes(1024))
    await note_spoken(tools.redis, make_spoken(uuid4(), voice))
    await tools.redis.xadd(speech_log_key(tenant), {"v": "0"})
    await note_spoken(tools.redis, make_spoken(tenant, voice))
    assert await roll_up(tools) == 1
    assert await count_acts(database, tenant) == 1


async def test_words_that_no_record_takes_do_not_keep_a_context_off_it(
    tools: Tools, database: Database, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """An origin with a space in it would be refused by the audit log: the counts stand there without it."""
    tenant = (await make_tenant("acme")).id
    voice = await make_voice(tenant, embedding=bytes(1024))
    await note_spoken(tools.redis, make_spoken(tenant, voice, origin="no address"))
    assert await roll_up(tools) == 1
    async with database.transaction(tenant=tenant) as connection:
        (entry,) = await read_audit(connection, tenant, action="voice.spoken")
    assert (entry.origin, entry.detail["characters"]) == ("unknown", 40)


def test_usage_is_summed_by_voice_and_day() -> None:
    """The day is that of the context's end in UTC."""
    tenant, voice, other = uuid4(), uuid4(), uuid4()
    midnight = datetime(2026, 5, 5, tzinfo=UTC)
    rows = sum_up(
        [
            make_spoken(tenant, voice),
            make_spoken(tenant, other),
            make_spoken(tenant, voice, at=midnight),
            make_spoken(tenant, voice),
        ]
    )
    assert {(row.day.isoformat(), row.voice_id): row.contexts for row in rows} == {
        ("2026-05-04", voice): 2,
        ("2026-05-04", other): 1,
        ("2026-05-05", voice): 1,
    }
