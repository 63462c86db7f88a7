"""Aliases: a tenant's own words for its voices, which stand wherever a voice's id may."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.errors import InvalidValue
from storage.names import check_alias
from storage.states import VoiceState
from storage.tables import voice_aliases
from storage.voices.records import change_voice, lock_voice

MAX_OF_A_VOICE = 64


@dataclass(frozen=True, slots=True)
class Alias:
    """A word and the voice that it stands for."""

    alias: str
    voice_id: UUID
    created_at: datetime


async def set_alias(connection: AsyncConnection, tenant: UUID, alias: str, voice_id: UUID) -> bool:
    """Let an alias stand for a voice, whatever it stood for before; False when the tenant has no such voice.

    Raises InvalidValue for the alias, or when the voice has MAX_OF_A_VOICE of them.
    """
    check_alias(alias)
    before = await _find(connection, tenant, alias)
    # In one order, or two that exchange their aliases would wait for each other.
    touched = sorted({voice_id} | ({before} if before else set()))
    rows = {touched_id: await lock_voice(connection, tenant, touched_id) for touched_id in touched}
    row = rows[voice_id]
    if row is None or row.state in (VoiceState.DELETING, VoiceState.DELETED):
        return False
    if before == voice_id:
        return True
    await _check_room(connection, tenant, voice_id)
    statement = upsert(voice_aliases).values(tenant_id=tenant, alias=alias, voice_id=voice_id)
    moved = {"voice_id": voice_id, "created_at": func.now()}
    await connection.execute(statement.on_conflict_do_update(index_elements=["tenant_id", "alias"], set_=moved))
    for touched_id in touched:
        await change_voice(connection, touched_id)
    return True


async def remove_alias(connection: AsyncConnection, tenant: UUID, alias: str) -> UUID | None:
    """The voice that it stood for; None when the tenant has no such alias. Raises InvalidValue for what can be none."""
    check_alias(alias)
    voice_id = await _find(connection, tenant, alias)
    if voice_id is None:
        return None
    await lock_voice(connection, tenant, voice_id)
    statement = delete(voice_aliases).where(
        voice_aliases.c.tenant_id == tenant, voice_aliases.c.alias == alias, voice_aliases.c.voice_id == voice_id
    )
    if (await connection.execute(statement)).rowcount == 0:
        return None
    await change_voice(connection, voice_id)
    return voice_id


async def list_aliases(connection: AsyncConnection, tenant: UUID, *, after: str = "", limit: int = 100) -> list[Alias]:
    """The tenant's aliases in their own order, those that follow `after`."""
    query = (
        select(voice_aliases)
        .where(voice_aliases.c.tenant_id == tenant, voice_aliases.c.alias > after)
        .order_by(voice_aliases.c.alias)
        .limit(limit)
    )
    return [Alias(row.alias, row.voice_id, row.created_at) for row in await connection.execute(query)]


async def _find(connection: AsyncConnection, tenant: UUID, alias: str) -> UUID | None:
    query = select(voice_aliases.c.voice_id).where(voice_aliases.c.tenant_id == tenant, voice_aliases.c.alias == alias)
    found: UUID | None = (await connection.execute(query)).scalar()
    return found


async def _check_room(connection: AsyncConnection, tenant: UUID, voice_id: UUID) -> None:
    query = select(func.count()).where(voice_aliases.c.tenant_id == tenant, voice_aliases.c.voice_id == voice_id)
    if (await connection.execute(query)).scalar_one() >= MAX_OF_A_VOICE:
        raise InvalidValue("alias", f"is one too many: a voice has at most {MAX_OF_A_VOICE}; remove another first")
