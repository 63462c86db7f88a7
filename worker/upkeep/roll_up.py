"""The roll-up of the speech log into usage, the voices' last use, and the audit log; each entry once.

What entries do and the mark of how far they were read are one transaction, and the mark is locked from its beginning.
So whatever dies, and however many roll up at once, an entry has either done all it does or is read again.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from uuid import UUID

import structlog
from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.errors import ServerUnavailable
from storage.evidence.audit import Act, append
from storage.streams.speech_log import (
    MAX_LENGTH,
    Batch,
    Mark,
    Spoken,
    list_speakers,
    read_spoken,
    trim_spoken,
)
from storage.tables import speech_log_positions
from storage.tenancy.usage import Usage, add_usage
from storage.voices.voices import touch_voices
from worker.upkeep.rounds import Tools

log = structlog.get_logger()

BATCH = 500


async def roll_up(tools: Tools) -> int:
    """Account for what tenants have spoken; how many contexts. Raises ServerUnavailable."""
    speakers = await list_speakers(tools.redis)
    # Where there is more than a round can do, it is not always the same ones who wait.
    random.shuffle(speakers)
    done = 0
    for tenant in speakers:
        if tools.over:
            break
        try:
            done += await roll_up_tenant(tools, tenant)
        except ServerUnavailable:
            raise
        except Exception as error:
            log.error("a speech log could not be rolled up", tenant=str(tenant), exc_info=error)
    return done


async def roll_up_tenant(tools: Tools, tenant: UUID) -> int:
    """Account for what a tenant has spoken, as far as there is time; how many contexts. Raises ServerUnavailable."""
    done = 0
    while True:
        batch = await _account_for(tools, tenant)
        # Only now: were it dropped before the commit, it could be lost.
        await trim_spoken(tools.redis, tenant, batch.mark)
        _warn(tenant, batch)
        done += len(batch.entries)
        if len(batch.entries) + batch.malformed < BATCH or tools.over:
            return done


async def _account_for(tools: Tools, tenant: UUID) -> Batch:
    async with tools.database.transaction(tenant=tenant) as connection:
        mark = await _lock_mark(connection, tenant)
        batch = await read_spoken(tools.redis, tenant, mark, BATCH)
        if batch.mark != mark:
            acts = list_acts(batch.entries)
            await add_usage(connection, tenant, sum_up(batch.entries))
            await touch_voices(connection, tenant, _last_uses(batch.entries))
            await _move_mark(connection, tenant, batch.mark)
            await append(connection, tenant, *acts)
    return batch


def sum_up(entries: Iterable[Spoken]) -> list[Usage]:
    """What each voice spoke on each day (UTC)."""
    sums: dict[tuple[date, UUID], Usage] = {}
    for spoken in entries:
        key = (_ended(spoken).date(), spoken.voice)
        known = sums.get(key) or Usage(*key)
        sums[key] = replace(
            known,
            contexts=known.contexts + 1,
            sentences=known.sentences + spoken.sentences,
            characters=known.characters + spoken.characters,
            audio_ms=known.audio_ms + spoken.audio_ms,
        )
    return list(sums.values())


def list_acts(entries: Iterable[Spoken]) -> list[Act]:
    """What is put on record of contexts; one with words that no record takes is put there without them."""
    return [_make_act(spoken) for spoken in entries]


def _make_act(spoken: Spoken) -> Act:
    counts = {"version": spoken.version, "sentences": spoken.sentences, "characters": spoken.characters}
    counts["audio_ms"] = spoken.audio_ms
    actor, at = f"key:{spoken.key_id}", _ended(spoken)
    words = {"context": spoken.context, "text_hmac": spoken.text_hmac}
    try:
        return Act(actor, "voice.spoken", "voice", str(spoken.voice), spoken.origin, {**counts, **words}, at)
    except ValueError:
        log.warning("a context is on record without its words", voice=str(spoken.voice))
        return Act(actor, "voice.spoken", "voice", str(spoken.voice), "unknown", counts, at)


def _last_uses(entries: Sequence[Spoken]) -> dict[UUID, datetime]:
    uses: dict[UUID, datetime] = {}
    for spoken in entries:
        uses[spoken.voice] = max(uses.get(spoken.voice, _ended(spoken)), _ended(spoken))
    return uses


def _ended(spoken: Spoken) -> datetime:
    return datetime.fromtimestamp(spoken.at_ms / 1000, UTC)


async def _lock_mark(connection: AsyncConnection, tenant: UUID) -> Mark:
    table, stream = speech_log_positions, _stream(tenant)
    made = upsert(table).values(stream=stream, position=str(Mark()))
    await connection.execute(made.on_conflict_do_nothing())
    query = select(table.c.position).where(table.c.stream == stream).with_for_update()
    return Mark.parse((await connection.execute(query)).scalar_one())


async def _move_mark(connection: AsyncConnection, tenant: UUID, mark: Mark) -> None:
    table = speech_log_positions
    await connection.execute(update(table).where(table.c.stream == _stream(tenant)).values(position=str(mark)))


def _stream(tenant: UUID) -> str:
    return f"speech_log:{tenant}"


def _warn(tenant: UUID, batch: Batch) -> None:
    if batch.malformed:
        log.error("entries of a speech log could not be read", tenant=str(tenant), count=batch.malformed)
    if batch.length >= MAX_LENGTH:
        log.error("a speech log was full: usage may be missing", tenant=str(tenant))
