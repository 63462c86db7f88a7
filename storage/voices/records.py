"""A voice and its newest version as rows: read, locked and changed; what all its repositories share."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Row, Select, and_, func, or_, select, update
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.errors import IllegalTransition, StaleRevision
from storage.states import VOICE_TRANSITIONS, ConsentState, VersionState, VoiceState, check_transition
from storage.tables import consents, voice_aliases, voice_versions, voices


@dataclass(frozen=True, slots=True)
class Version:
    """One recording of a voice, and what became of it."""

    number: int
    state: VersionState
    stage: str
    """How far its enrolment is: `waiting`, what the worker reports, `ended`."""
    quality: int | None
    """0 to 100."""
    quality_parts: dict[str, Any] | None
    duration_s: float | None
    error_code: str | None
    error_message: str | None
    created_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class Voice:
    """An enrolled speaker, without anything that was recorded."""

    id: UUID
    consent_id: UUID
    """The consent of the version that speaks; while there is none, that of the newest."""
    name: str
    state: VoiceState
    version: int
    """The version that speaks; 0 while there is none."""
    latest: Version | None
    """The newest version, which may be pending or have failed."""
    revision: int
    """Counts every change, of the aliases as well."""
    created_at: datetime
    updated_at: datetime
    last_used_at: datetime
    aliases: tuple[str, ...]


_PLAIN = [field.name for field in fields(Version) if field.name not in ("number", "state")]
_ITS_ALIASES = (
    select(func.array_agg(aggregate_order_by(voice_aliases.c.alias, voice_aliases.c.alias)))
    .where(voice_aliases.c.tenant_id == voices.c.tenant_id, voice_aliases.c.voice_id == voices.c.id)
    .scalar_subquery()
    .label("aliases")
)
_NEWEST = tuple(
    column.label(f"newest_{column.name}")
    for column in voice_versions.c
    if column.name not in ("upload", "recording", "embedding")
)


def select_voices(tenant: UUID) -> Select[Any]:
    """The tenant's voices that are not deleted, for `read_voice`."""
    newest = and_(voice_versions.c.voice_id == voices.c.id, voice_versions.c.version == voices.c.latest_version)
    return (
        select(voices, *_NEWEST, _ITS_ALIASES)
        .join(voice_versions, newest, isouter=True)
        .where(voices.c.tenant_id == tenant, voices.c.state != VoiceState.DELETED)
    )


def read_voice(row: Row[Any]) -> Voice:
    """A row of `select_voices` as a voice."""
    return Voice(
        id=row.id,
        consent_id=row.consent_id,
        name=row.name,
        state=VoiceState(row.state),
        version=row.version,
        latest=None if row.newest_version is None else read_version(row, "newest_"),
        revision=row.revision,
        created_at=row.created_at,
        updated_at=row.updated_at,
        last_used_at=row.last_used_at,
        aliases=tuple(row.aliases or ()),
    )


async def load_voice(connection: AsyncConnection, tenant: UUID, voice_id: UUID) -> Voice | None:
    """The tenant's voice; None when there is none with this id, or it was deleted."""
    row = (await connection.execute(select_voices(tenant).where(voices.c.id == voice_id))).one_or_none()
    return None if row is None else read_voice(row)


async def lock_voice(connection: AsyncConnection, tenant: UUID, voice_id: UUID) -> Row[Any] | None:
    """The voice's own row, which nobody else changes before this transaction ends.

    Whoever changes anything of a voice locks this row first, so that no two changes meet half way.
    """
    query = select(voices).where(voices.c.tenant_id == tenant, voices.c.id == voice_id).with_for_update()
    return (await connection.execute(query)).one_or_none()


async def change_voice(connection: AsyncConnection, voice_id: UUID, **values: object) -> None:
    """Change a voice that is locked, and count the change."""
    counted = {"revision": voices.c.revision + 1, "updated_at": func.now()}
    await connection.execute(update(voices).where(voices.c.id == voice_id).values(**counted, **values))


async def move_voice(
    connection: AsyncConnection, tenant: UUID, voice_id: UUID, wanted: VoiceState, **values: object
) -> None:
    """Take a voice to another state; raises IllegalTransition."""
    row = await lock_voice(connection, tenant, voice_id)
    check_transition("voice", VOICE_TRANSITIONS, None if row is None else VoiceState(row.state), wanted)
    await change_voice(connection, voice_id, state=wanted, **values)


def check_alive(row: Row[Any] | None, wanted: str) -> Row[Any]:
    """The locked row of a voice that can be changed; raises IllegalTransition for one that is going or gone."""
    state = "nothing" if row is None else row.state
    if row is None or state in (VoiceState.DELETING, VoiceState.DELETED):
        raise IllegalTransition("voice", state, wanted)
    return row


def check_revision(row: Row[Any], revision: int | None) -> None:
    """Raises StaleRevision unless the locked voice is at this revision; None asks for none in particular."""
    if revision is not None and revision != row.revision:
        raise StaleRevision(revision, row.revision)


def in_force() -> ColumnElement[bool]:
    """A consent that permits something now."""
    unexpired = or_(consents.c.expires_at.is_(None), consents.c.expires_at > func.now())
    return and_(consents.c.state == ConsentState.ACTIVE, unexpired)


async def lock_consent(connection: AsyncConnection, tenant: UUID, consent_id: UUID) -> bool:
    """Whether the consent is in force; it stays so until this transaction ends."""
    query = select(consents.c.id).where(consents.c.tenant_id == tenant, consents.c.id == consent_id, in_force())
    return (await connection.execute(query.with_for_update(read=True))).scalar() is not None


def read_version(row: Row[Any], prefix: str = "") -> Version:
    """A row with the columns of a version, each under a prefix if another table's are beside them."""
    number, state = getattr(row, prefix + "version"), getattr(row, prefix + "state")
    return Version(number, VersionState(state), *(getattr(row, prefix + name) for name in _PLAIN))
