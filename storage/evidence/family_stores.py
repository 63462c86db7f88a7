"""Where a consent and a tenant are kept: their voices first of all, each with a deletion and a receipt of its own.

All keys are destroyed before the first voice is taken in hand, so that nothing of the whole can be read any more,
however many voices there are to take care of one by one.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, and_, delete, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.encryption.keyring import destroy_data_key, destroy_tenant_keys
from storage.evidence.deletions import ObjectKind, Reason, Request, request_deletion
from storage.evidence.scenes import Progress, Rows, Scene, Store, Traces
from storage.evidence.voice_stores import forget_responses
from storage.states import ConsentState, DeletionState, VoiceState
from storage.streams.broadcasts import revoke_key, silence_voices
from storage.tables import api_keys, consents, data_keys, deletions, idempotency_keys, voice_aliases, voices
from storage.voices.consents import erase_consent

_BATCH = 20
_ORIGIN = "service"
_WHOLE_ATTEMPT_S = 3600.0
"""Ended by the attempt's own deadline."""


def _of_consent(scene: Scene) -> ColumnElement[bool]:
    return and_(voices.c.tenant_id == scene.tenant, voices.c.consent_id == scene.object_id)


def _of_tenant(scene: Scene) -> ColumnElement[bool]:
    return voices.c.tenant_id == scene.tenant


async def _silence(scene: Scene, whose: ColumnElement[bool]) -> int:
    query = select(voices.c.id).where(whose, voices.c.state != VoiceState.DELETED)
    async with scene.database.transaction(tenant=scene.tenant) as connection:
        found = list((await connection.execute(query)).scalars())
    await silence_voices(scene.redis, found)
    return len(found)


async def _silence_consent(scene: Scene) -> Progress:
    return Progress(await _silence(scene, _of_consent(scene)))


async def _silence_tenant(scene: Scene) -> Progress:
    count = await _silence(scene, _of_tenant(scene))
    await _tell_of_keys(scene)
    return Progress(count)


async def _tell_of_keys(scene: Scene) -> None:
    """Relays close what was opened with a key that is revoked; of the others they find that they still work."""
    query = select(api_keys.c.id).where(api_keys.c.tenant_id == scene.tenant)
    async with scene.database.transaction(tenant=scene.tenant) as connection:
        found = list((await connection.execute(query)).scalars())
    for key_id in found:
        await revoke_key(scene.redis, key_id)


async def _destroy_consent_keys(connection: AsyncConnection, scene: Scene) -> Progress:
    of_voices = select(voices.c.id).where(_of_consent(scene), voices.c.state != VoiceState.DELETED)
    statement = delete(data_keys).where(data_keys.c.tenant_id == scene.tenant, data_keys.c.owner_id.in_(of_voices))
    count = (await connection.execute(statement)).rowcount
    return Progress(count + int(await destroy_data_key(connection, scene.object_id)))


async def _destroy_tenant_keys(connection: AsyncConnection, scene: Scene) -> Progress:
    query = select(func.count()).select_from(data_keys).where(data_keys.c.tenant_id == scene.tenant)
    count: int = (await connection.execute(query)).scalar_one()
    return Progress(count + await destroy_tenant_keys(connection, scene.tenant))


async def _erase_consents_voices(scene: Scene) -> Progress:
    return await _erase_children(scene, ObjectKind.VOICE, _open_voices(_of_consent(scene)))


async def _erase_tenants_voices(scene: Scene) -> Progress:
    return await _erase_children(scene, ObjectKind.VOICE, _open_voices(_of_tenant(scene)))


async def _erase_tenants_consents(scene: Scene) -> Progress:
    of_consent = and_(
        deletions.c.tenant_id == consents.c.tenant_id,
        deletions.c.object_id == consents.c.id,
        deletions.c.object_kind == ObjectKind.CONSENT,
    )
    left = or_(consents.c.state != ConsentState.DELETED, deletions.c.state != DeletionState.DONE)
    query = select(consents.c.id).join(deletions, of_consent, isouter=True)
    return await _erase_children(
        scene, ObjectKind.CONSENT, query.where(consents.c.tenant_id == scene.tenant, left).order_by(consents.c.id)
    )


def _open_voices(whose: ColumnElement[bool]) -> Select[Any]:
    """Voices that are there, or whose own deletion is not done."""
    of_voice = and_(
        deletions.c.tenant_id == voices.c.tenant_id,
        deletions.c.object_id == voices.c.id,
        deletions.c.object_kind == ObjectKind.VOICE,
    )
    left = or_(voices.c.state != VoiceState.DELETED, deletions.c.state != DeletionState.DONE)
    return select(voices.c.id).join(deletions, of_voice, isouter=True).where(whose, left).order_by(voices.c.id)


async def _erase_children(scene: Scene, kind: ObjectKind, query: Select[Any]) -> Progress:
    """Delete one after the other, as many as there is time for; one that is not done is left to the next attempt."""
    done, after = 0, UUID(int=0)
    while scene.left_s():
        async with scene.database.transaction(tenant=scene.tenant) as connection:
            later = query.where(query.selected_columns[0] > after).limit(_BATCH)
            batch = list((await connection.execute(later)).scalars())
        if not batch:
            break
        after = batch[-1]
        for child in batch:
            if scene.left_s():
                done += await _erase_child(scene, kind, child)
    async with scene.database.transaction(tenant=scene.tenant) as connection:
        counted = select(func.count()).select_from(query.subquery())
        left: int = (await connection.execute(counted)).scalar_one()
    return Progress(done, waits_for=f"{left} {kind}s are not deleted yet" if left else "")


async def _erase_child(scene: Scene, kind: ObjectKind, child: UUID) -> bool:
    parent = scene.deletion
    reason = Reason.TENANT if parent.object_kind is ObjectKind.TENANT else parent.reason
    request = Request(kind, child, reason, parent.requested_by, _ORIGIN)
    async with scene.database.transaction(tenant=scene.tenant) as connection:
        deletion = await request_deletion(connection, scene.tenant, request)
    if deletion is None:
        return False
    return (await scene.run_child(deletion.id)).state is DeletionState.DONE


async def _erase_consent(connection: AsyncConnection, scene: Scene) -> Progress:
    return Progress(int(await erase_consent(connection, scene.tenant, scene.object_id)))


async def _erase_tenants_rows(connection: AsyncConnection, scene: Scene) -> Progress:
    count = 0
    for table in (voice_aliases, idempotency_keys):
        count += (await connection.execute(delete(table).where(table.c.tenant_id == scene.tenant))).rowcount
    return Progress(count)


async def _revoke_keys(connection: AsyncConnection, scene: Scene) -> Progress:
    statement = (
        update(api_keys)
        .where(api_keys.c.tenant_id == scene.tenant, api_keys.c.revoked_at.is_(None))
        .values(revoked_at=func.now())
    )
    return Progress((await connection.execute(statement)).rowcount)


async def _close_sockets(scene: Scene) -> Progress:
    await _tell_of_keys(scene)
    return Progress()


CONSENT_STORES: tuple[Store, ...] = (
    Traces("speech", _silence_consent, at_once=True, bound_s=_WHOLE_ATTEMPT_S),
    Rows("keys", _destroy_consent_keys, at_once=True),
    Traces("voices", _erase_consents_voices, needs=("keys",), bound_s=_WHOLE_ATTEMPT_S),
    Rows("rows", _erase_consent, needs=("keys", "voices")),
    Rows("idempotency", forget_responses),
)

TENANT_STORES: tuple[Store, ...] = (
    Traces("speech", _silence_tenant, at_once=True, bound_s=_WHOLE_ATTEMPT_S),
    Rows("keys", _destroy_tenant_keys, at_once=True),
    Traces("voices", _erase_tenants_voices, needs=("keys",), bound_s=_WHOLE_ATTEMPT_S),
    Traces("consents", _erase_tenants_consents, needs=("keys", "voices"), bound_s=_WHOLE_ATTEMPT_S),
    Rows("rows", _erase_tenants_rows, needs=("voices", "consents")),
    Rows("api_keys", _revoke_keys, needs=("rows",)),
    Traces("sockets", _close_sockets, needs=("api_keys",)),
)
