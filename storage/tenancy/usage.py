"""Usage: how much each voice has spoken, a row a day (UTC)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, time
from typing import Any
from uuid import UUID

from sqlalchemy import Row, select, tuple_
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.paging import Page, Position, Slice, cut
from storage.tables import usage

_COUNTS = ("contexts", "sentences", "characters", "audio_ms")


@dataclass(frozen=True, slots=True)
class Usage:
    """What one voice spoke on one day."""

    day: date
    voice_id: UUID
    contexts: int = 0
    sentences: int = 0
    characters: int = 0
    audio_ms: int = 0


async def add_usage(connection: AsyncConnection, tenant: UUID, rows: Iterable[Usage]) -> None:
    """Add to what is noted; exactly once when the caller's transaction also notes how far it has read."""
    # In one order, or two that add to the same days would wait for each other.
    for row in sorted(rows, key=lambda row: (row.day, row.voice_id)):
        statement = upsert(usage).values(tenant_id=tenant, **asdict(row))
        added = {name: usage.c[name] + statement.excluded[name] for name in _COUNTS}
        await connection.execute(statement.on_conflict_do_update(index_elements=list(usage.primary_key), set_=added))


async def read_usage(
    connection: AsyncConnection, tenant: UUID, first_day: date, last_day: date, *, voice: UUID | None = None, page: Page
) -> Slice[Usage]:
    """What was spoken from the first to the last day, both included, newest first; a day's position is its midnight."""
    query = select(usage).where(usage.c.tenant_id == tenant, usage.c.day.between(first_day, last_day))
    if voice is not None:
        query = query.where(usage.c.voice_id == voice)
    if page.after is not None:
        at, voice_id = page.after
        query = query.where(tuple_(usage.c.day, usage.c.voice_id) < tuple_(at.astimezone(UTC).date(), voice_id))
    query = query.order_by(usage.c.day.desc(), usage.c.voice_id.desc()).limit(page.limit + 1)
    return cut((await connection.execute(query)).all(), page, _usage, _place)


def _usage(row: Row[Any]) -> Usage:
    return Usage(row.day, row.voice_id, row.contexts, row.sentences, row.characters, row.audio_ms)


def _place(row: Usage) -> Position:
    return datetime.combine(row.day, time(), UTC), row.voice_id
