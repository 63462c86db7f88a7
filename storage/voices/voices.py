"""Voices and their versions: what was recorded and what it became, sealed with the voice's own key."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Row, delete, exists, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.database import Database
from storage.encryption.data_keys import destroy_data_key, load_data_key, make_data_key
from storage.encryption.envelope import Kind, Label, seal, unseal
from storage.encryption.keyring import RootKey
from storage.errors import IllegalTransition
from storage.tables import VOICE_TRANSITIONS, VoiceState, consents, voice_versions, voices

LIST_LIMIT = 1000


@dataclass(frozen=True, slots=True)
class Voice:
    """An enrolled speaker, without anything that was recorded."""

    id: UUID
    name: str
    state: VoiceState
    version: int
    error_code: str | None
    error_message: str | None
    created_at: datetime


async def create_voice(
    database: Database, root: RootKey, tenant: UUID, *, name: str, consent: UUID, upload: bytes
) -> Voice | None:
    """Keep an uploaded recording as a pending voice; None when the tenant has no such consent."""
    voice_id = uuid4()
    async with database.transaction(tenant=tenant) as connection:
        if not (await connection.execute(select(exists().where(consents.c.id == consent)))).scalar():
            return None
        data_key = await make_data_key(connection, root, tenant, voice_id)
        row = {"id": voice_id, "tenant_id": tenant, "consent_id": consent, "name": name}
        row |= {"state": VoiceState.PENDING, "version": 1}
        created = (await connection.execute(insert(voices).values(**row).returning(voices))).one()
        sealed = seal(data_key, upload, Label(tenant, voice_id, Kind.UPLOAD, 1))
        await connection.execute(
            insert(voice_versions).values(voice_id=voice_id, version=1, tenant_id=tenant, upload=sealed)
        )
    return _voice(created)


async def find_voice(database: Database, tenant: UUID, voice_id: UUID) -> Voice | None:
    """The tenant's voice; None when it has none with this id, or it was deleted."""
    query = select(voices).where(voices.c.id == voice_id, voices.c.state != VoiceState.DELETED)
    async with database.transaction(tenant=tenant) as connection:
        row = (await connection.execute(query)).one_or_none()
    return None if row is None else _voice(row)


async def list_voices(database: Database, tenant: UUID) -> list[Voice]:
    """The tenant's voices, newest first, at most LIST_LIMIT."""
    query = (
        select(voices)
        .where(voices.c.state != VoiceState.DELETED)
        .order_by(voices.c.created_at.desc(), voices.c.id)
        .limit(LIST_LIMIT)
    )
    async with database.transaction(tenant=tenant) as connection:
        return [_voice(row) for row in (await connection.execute(query)).all()]


async def load_upload(database: Database, root: RootKey, tenant: UUID, voice_id: UUID, version: int) -> bytes | None:
    """The recording as it was uploaded, while the version waits for its enrolment; raises DecryptionError."""
    return await _load(database, root, Label(tenant, voice_id, Kind.UPLOAD, version))


async def load_embedding(database: Database, root: RootKey, tenant: UUID, voice_id: UUID, version: int) -> bytes | None:
    """The embedding's 1024 bytes (256 little-endian float32), or None; raises DecryptionError."""
    return await _load(database, root, Label(tenant, voice_id, Kind.EMBEDDING, version))


async def complete_enrolment(
    database: Database,
    root: RootKey,
    tenant: UUID,
    voice_id: UUID,
    version: int,
    *,
    recording: bytes,
    embedding: bytes,
    duration_s: float,
) -> None:
    """Replace the upload by the trimmed recording and its embedding, and make the voice ready.

    Raises IllegalTransition when the voice is not pending (any more), for instance because it was deleted meanwhile.
    """
    async with database.transaction(tenant=tenant) as connection:
        await _move(connection, voice_id, VoiceState.READY)
        data_key = await load_data_key(connection, root, tenant, voice_id)
        if data_key is None:
            raise IllegalTransition("voice", VoiceState.DELETED, VoiceState.READY)
        sealed = {
            kind.value: seal(data_key, content, Label(tenant, voice_id, kind, version))
            for kind, content in ((Kind.RECORDING, recording), (Kind.EMBEDDING, embedding))
        }
        await connection.execute(
            update(voice_versions)
            .where(voice_versions.c.voice_id == voice_id, voice_versions.c.version == version)
            .values(upload=None, duration_s=duration_s, **sealed)
        )


async def fail_enrolment(database: Database, tenant: UUID, voice_id: UUID, *, code: str, message: str) -> None:
    """Note why a recording cannot become a voice, and destroy the recording.

    Raises IllegalTransition when the voice is not pending.
    """
    async with database.transaction(tenant=tenant) as connection:
        await _move(connection, voice_id, VoiceState.FAILED, error_code=code, error_message=message)
        await _shred(connection, voice_id)


async def delete_voice(database: Database, tenant: UUID, voice_id: UUID) -> bool:
    """Destroy a voice: first its key, then what the key sealed. False when the tenant has no such voice."""
    async with database.transaction(tenant=tenant) as connection:
        try:
            await _move(connection, voice_id, VoiceState.DELETED, name="", deleted_at=func.now())
        except IllegalTransition:
            return False
        await _shred(connection, voice_id)
    return True


async def _load(database: Database, root: RootKey, label: Label) -> bytes | None:
    column = voice_versions.c[label.kind.value]
    query = select(column).where(voice_versions.c.voice_id == label.owner, voice_versions.c.version == label.version)
    async with database.transaction(tenant=label.tenant) as connection:
        data_key = await load_data_key(connection, root, label.tenant, label.owner)
        sealed: bytes | None = (await connection.execute(query)).scalar()
    return None if data_key is None or sealed is None else unseal(data_key, sealed, label)


async def _move(connection: AsyncConnection, voice_id: UUID, wanted: VoiceState, **values: object) -> None:
    """Take the voice to `wanted`, under a row lock, if the table of transitions has that step."""
    query = select(voices.c.state).where(voices.c.id == voice_id).with_for_update()
    found: str | None = (await connection.execute(query)).scalar()
    if found is None or wanted not in VOICE_TRANSITIONS[VoiceState(found)]:
        raise IllegalTransition("voice", found or "nothing", wanted)
    await connection.execute(update(voices).where(voices.c.id == voice_id).values(state=wanted, **values))


async def _shred(connection: AsyncConnection, voice_id: UUID) -> None:
    await destroy_data_key(connection, voice_id)
    await connection.execute(delete(voice_versions).where(voice_versions.c.voice_id == voice_id))


def _voice(row: Row[Any]) -> Voice:
    return Voice(
        id=row.id,
        name=row.name,
        state=VoiceState(row.state),
        version=row.version,
        error_code=row.error_code,
        error_message=row.error_message,
        created_at=row.created_at,
    )
