"""Enrolments that are under way: who has them, by which consent, and what is left of those that ended."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.states import VersionState, VoiceState
from storage.tables import voice_versions, voices


@dataclass(frozen=True, slots=True)
class Waiting:
    """A version that waits for its enrolment."""

    consent_id: UUID
    created_at: datetime
    claimed_until: datetime | None
    """Until when somebody has it for himself; None while nobody has."""


async def find_waiting(connection: AsyncConnection, tenant: UUID, voice_id: UUID, version: int) -> Waiting | None:
    """None when the version waits no more: it has ended well or not, or its voice is going or gone."""
    going = voices.c.state.in_([VoiceState.DELETING, VoiceState.DELETED])
    query = (
        select(voice_versions.c.consent_id, voice_versions.c.created_at, voice_versions.c.claimed_until)
        .join(voices, voices.c.id == voice_versions.c.voice_id)
        .where(
            voice_versions.c.tenant_id == tenant,
            voice_versions.c.voice_id == voice_id,
            voice_versions.c.version == version,
            voice_versions.c.state == VersionState.PENDING,
            ~going,
        )
    )
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else Waiting(*row)


async def release_enrolment(
    connection: AsyncConnection, tenant: UUID, voice_id: UUID, version: int, claimed_until: datetime | None
) -> None:
    """Give a claim back before its time, unless another has followed it."""
    await connection.execute(
        update(voice_versions)
        .where(
            voice_versions.c.tenant_id == tenant,
            voice_versions.c.voice_id == voice_id,
            voice_versions.c.version == version,
            voice_versions.c.claimed_until == claimed_until,
        )
        .values(claimed_until=func.now())
    )


async def wipe_uploads(connection: AsyncConnection, tenant: UUID) -> int:
    """Destroy uploads of versions that have ended, which an enrolment's end does by itself; how many there were."""
    left = voice_versions.c.upload.is_not(None)
    statement = update(voice_versions).where(
        voice_versions.c.tenant_id == tenant, voice_versions.c.state != VersionState.PENDING, left
    )
    return (await connection.execute(statement.values(upload=None))).rowcount
