"""Voices: made, found, listed, renamed, disabled, deleted. All within the caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid4

from sqlalchemy import and_, delete, func, insert, null, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.encryption.keyring import Keyring, destroy_data_key
from storage.errors import IllegalTransition
from storage.names import check_name, parse_id, reads_like_alias
from storage.paging import Page, Position, Slice, cut, turn_to
from storage.states import VOICE_TRANSITIONS, VoiceState, check_transition
from storage.tables import consents, idempotency_keys, voice_aliases, voice_versions, voices
from storage.tenancy.tenants import hold_tenant
from storage.voices.records import Version as Version
from storage.voices.records import Voice as Voice
from storage.voices.records import (
    change_voice,
    check_alive,
    check_revision,
    in_force,
    load_voice,
    lock_consent,
    lock_voice,
    move_voice,
    read_voice,
    select_voices,
)
from storage.voices.versions import keep_upload


@dataclass(frozen=True, slots=True)
class Speaker:
    """What a context needs to know of the voice that it speaks with."""

    voice: UUID
    version: int
    state: VoiceState
    expires_at: datetime | None = None
    """When its consent ends by itself, and what is spoken with it."""


@dataclass(frozen=True, slots=True)
class Erased:
    """How many rows of each kind a deletion has taken."""

    data_keys: int
    versions: int
    aliases: int


async def create_voice(
    connection: AsyncConnection,
    keyring: Keyring,
    tenant: UUID,
    *,
    name: str,
    consent: UUID,
    upload: bytes,
    voice_id: UUID | None = None,
) -> Voice | None:
    """Keep an uploaded recording as a pending voice; None when the tenant has no such consent in force.

    Raises InvalidValue for the name, and IllegalTransition while the tenant is going.
    """
    check_name(name)
    await hold_tenant(connection, tenant)
    if not await lock_consent(connection, tenant, consent):
        return None
    made = voice_id or uuid4()
    await keyring.make_data_key(connection, tenant, made)
    row = {"id": made, "tenant_id": tenant, "consent_id": consent, "name": name}
    row |= {"state": VoiceState.PENDING, "version": 0, "latest_version": 1}
    await connection.execute(insert(voices).values(**row))
    await keep_upload(connection, keyring, tenant, made, 1, consent=consent, upload=upload)
    return await load_voice(connection, tenant, made)


async def find_voice(connection: AsyncConnection, tenant: UUID, voice_id: UUID) -> Voice | None:
    """The tenant's voice; None when it has none with this id, or it was deleted. One that is being deleted is found."""
    return await load_voice(connection, tenant, voice_id)


async def find_speaker(connection: AsyncConnection, tenant: UUID, name: str) -> Speaker | None:
    """The voice with this id or alias, if it is ready and its consent in force."""
    consented = and_(consents.c.tenant_id == voices.c.tenant_id, consents.c.id == voices.c.consent_id)
    query = (
        select(voices.c.id, voices.c.version, voices.c.state, consents.c.expires_at)
        .join(consents, consented)
        .where(voices.c.tenant_id == tenant, voices.c.state == VoiceState.READY, in_force())
    )
    voice_id = parse_id(name)
    if voice_id is not None:
        query = query.where(voices.c.id == voice_id)
    elif not reads_like_alias(name):
        # What no alias can be (half a surrogate pair, for one) may be nothing that Postgres can be asked for.
        return None
    else:
        named = and_(voice_aliases.c.tenant_id == voices.c.tenant_id, voice_aliases.c.voice_id == voices.c.id)
        query = query.join(voice_aliases, named).where(
            voice_aliases.c.tenant_id == tenant, voice_aliases.c.alias == name
        )
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else Speaker(row.id, row.version, VoiceState(row.state), row.expires_at)


async def list_voices(
    connection: AsyncConnection,
    tenant: UUID,
    page: Page,
    *,
    state: VoiceState | None = None,
    name: str = "",
    part: str = "",
) -> Slice[Voice]:
    """The tenant's voices, newest first; if asked for, those in one state only, of exactly one name, or with a part in
    their names, in whichever case."""
    query = select_voices(tenant)
    if state is not None:
        query = query.where(voices.c.state == state)
    if name:
        query = query.where(voices.c.name == check_name(name))
    if part:
        query = query.where(voices.c.name.icontains(check_name(part), autoescape=True))
    rows = (await connection.execute(turn_to(query, page, voices.c.created_at, voices.c.id))).all()
    return cut(rows, page, read_voice, _place)


async def rename_voice(
    connection: AsyncConnection, tenant: UUID, voice_id: UUID, name: str, *, revision: int | None
) -> Voice:
    """Raises InvalidValue, IllegalTransition (going or gone), or StaleRevision when `revision` is not the present."""
    check_name(name)
    row = check_alive(await lock_voice(connection, tenant, voice_id), "renamed")
    check_revision(row, revision)
    await change_voice(connection, voice_id, name=name)
    return await _reload(connection, tenant, voice_id)


async def disable_voice(connection: AsyncConnection, tenant: UUID, voice_id: UUID) -> Voice:
    """A ready voice speaks no more, until it is enabled; raises IllegalTransition."""
    await move_voice(connection, tenant, voice_id, VoiceState.DISABLED)
    return await _reload(connection, tenant, voice_id)


async def enable_voice(connection: AsyncConnection, tenant: UUID, voice_id: UUID) -> Voice:
    """A disabled voice speaks again; raises IllegalTransition."""
    row = await lock_voice(connection, tenant, voice_id)
    if row is None or row.state != VoiceState.DISABLED:
        raise IllegalTransition("voice", "nothing" if row is None else row.state, VoiceState.READY)
    await change_voice(connection, voice_id, state=VoiceState.READY)
    return await _reload(connection, tenant, voice_id)


async def begin_deletion(connection: AsyncConnection, tenant: UUID, voice_id: UUID) -> bool:
    """From this transaction's end on the voice speaks no more; False when it was going already, or is not there."""
    try:
        await move_voice(connection, tenant, voice_id, VoiceState.DELETING)
    except IllegalTransition:
        return False
    return True


async def finish_deletion(connection: AsyncConnection, tenant: UUID, voice_id: UUID) -> Erased:
    """Destroy the voice's key, then what it sealed, its aliases and its name; zeros when that was done before.

    Raises IllegalTransition unless the deletion was begun.
    """
    row = await lock_voice(connection, tenant, voice_id)
    if row is not None and row.state == VoiceState.DELETED:
        return Erased(0, 0, 0)
    check_transition("voice", VOICE_TRANSITIONS, None if row is None else VoiceState(row.state), VoiceState.DELETED)
    keys = await destroy_data_key(connection, voice_id)
    versions = await connection.execute(delete(voice_versions).where(voice_versions.c.voice_id == voice_id))
    aliases = await connection.execute(delete(voice_aliases).where(voice_aliases.c.voice_id == voice_id))
    await _forget_answers(connection, tenant, voice_id)
    await change_voice(connection, voice_id, state=VoiceState.DELETED, name="", deleted_at=func.now())
    return Erased(int(keys), versions.rowcount, aliases.rowcount)


async def touch_voices(connection: AsyncConnection, tenant: UUID, used: Mapping[UUID, datetime]) -> None:
    """Note when voices were last used; never to an earlier time than is known."""
    for voice_id, at in sorted(used.items()):
        await connection.execute(
            update(voices)
            .where(voices.c.tenant_id == tenant, voices.c.id == voice_id)
            .values(last_used_at=func.greatest(voices.c.last_used_at, at))
        )


async def list_unused(connection: AsyncConnection, tenant: UUID, before: datetime, limit: int) -> list[UUID]:
    """Voices that were last used before that time, and are not being deleted; the longest unused first."""
    query = (
        select(voices.c.id)
        .where(
            voices.c.tenant_id == tenant,
            voices.c.last_used_at < before,
            voices.c.state != VoiceState.DELETED,
            voices.c.state != VoiceState.DELETING,
        )
        .order_by(voices.c.last_used_at, voices.c.id)
        .limit(limit)
    )
    return list((await connection.execute(query)).scalars())


async def _forget_answers(connection: AsyncConnection, tenant: UUID, voice_id: UUID) -> None:
    """What the request that made it was answered names the voice; that it was answered stays, or it is done anew."""
    answered = (idempotency_keys.c.tenant_id == tenant, idempotency_keys.c.object_id == voice_id)
    await connection.execute(update(idempotency_keys).where(*answered).values(response=null()))


async def _reload(connection: AsyncConnection, tenant: UUID, voice_id: UUID) -> Voice:
    voice = await load_voice(connection, tenant, voice_id)
    if voice is None:
        raise IllegalTransition("voice", "nothing", "read")
    return voice


def _place(voice: Voice) -> Position:
    return voice.created_at, voice.id
