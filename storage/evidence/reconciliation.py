"""After a restore: what an old backup has brought back and today's keyring cannot open is deleted again.

The keyring has no key for what was deleted since the backup was made, so nothing of it can be read; but the backup does
not know that it was deleted, and its names, aliases and ciphertexts are rows again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Select, and_, exists, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.database import Database
from storage.evidence.deletions import Deletion, ObjectKind, Reason, Request, request_deletion
from storage.evidence.erasure import Erasure
from storage.states import ConsentState, DeletionState, VoiceState
from storage.tables import consents, data_keys, tenant_keys, voices
from storage.tenancy.tenants import walk_tenants

ACTOR, ORIGIN = "operator:cli", "cli"
_ATTEMPT_S = 600.0
_GOING = (VoiceState.DELETING, VoiceState.DELETED)


@dataclass(slots=True)
class Reconciled:
    """How much had been deleted since the backup was made."""

    tenants: int = 0
    consents: int = 0
    voices: int = 0
    unfinished: int = 0
    """Deletions that Celery has to go on with."""


async def reconcile(database: Database, erasure: Erasure, on_progress: Callable[[int], None]) -> Reconciled:
    """Delete again what the keyring has no key for; `on_progress` gets the number of tenants looked at.

    To be called once the keyring is there: without one it would delete everything. Raises ServerUnavailable; doing it
    again goes on where it ended.
    """
    found = Reconciled()
    async for number, tenant in _number(walk_tenants(database, deleted=False)):
        async with database.transaction(tenant=tenant) as connection:
            bare = await _is_bare(connection, tenant)
        if bare:
            found.tenants += await _delete(database, erasure, tenant, ObjectKind.TENANT, [tenant], found)
        else:
            async with database.transaction(tenant=tenant) as connection:
                consents_gone = await _list(connection, _keyless_consents(tenant))
            found.consents += await _delete(database, erasure, tenant, ObjectKind.CONSENT, consents_gone, found)
            async with database.transaction(tenant=tenant) as connection:
                voices_gone = await _list(connection, _keyless_voices(tenant))
            found.voices += await _delete(database, erasure, tenant, ObjectKind.VOICE, voices_gone, found)
        on_progress(number)
    return found


async def _delete(
    database: Database, erasure: Erasure, tenant: UUID, kind: ObjectKind, wanted: list[UUID], found: Reconciled
) -> int:
    count = 0
    for object_id in wanted:
        deletion = await _request(database, tenant, kind, object_id)
        if deletion is not None:
            count += 1
            done = await erasure.run(tenant, deletion.id, within_s=_ATTEMPT_S)
            found.unfinished += done.state is not DeletionState.DONE
    return count


async def _request(database: Database, tenant: UUID, kind: ObjectKind, object_id: UUID) -> Deletion | None:
    request = Request(kind, object_id, Reason.RESTORED, ACTOR, ORIGIN)
    async with database.transaction(tenant=tenant) as connection:
        return await request_deletion(connection, tenant, request)


async def _is_bare(connection: AsyncConnection, tenant: UUID) -> bool:
    """Whether the tenant has consents or voices, and no key at all: it was deleted as a whole."""
    has_keys = exists().where(tenant_keys.c.tenant_id == tenant)
    has_rows = or_(
        exists().where(consents.c.tenant_id == tenant, consents.c.state != ConsentState.DELETED),
        exists().where(voices.c.tenant_id == tenant, voices.c.state != VoiceState.DELETED),
    )
    return bool((await connection.execute(select(and_(~has_keys, has_rows)))).scalar())


async def _list(connection: AsyncConnection, query: Select[Any]) -> list[UUID]:
    return list((await connection.execute(query)).scalars())


def _keyless_consents(tenant: UUID) -> Select[Any]:
    has_key = exists().where(data_keys.c.owner_id == consents.c.id)
    query = select(consents.c.id).where(
        consents.c.tenant_id == tenant, consents.c.state != ConsentState.DELETED, ~has_key
    )
    return query.order_by(consents.c.id)


def _keyless_voices(tenant: UUID) -> Select[Any]:
    """A voice whose only enrolment failed has no key either, and nothing that was sealed."""
    has_key = exists().where(data_keys.c.owner_id == voices.c.id)
    query = select(voices.c.id).where(
        voices.c.tenant_id == tenant, voices.c.state.not_in([*_GOING, VoiceState.FAILED]), ~has_key
    )
    return query.order_by(voices.c.id)


async def _number(items: AsyncIterator[UUID]) -> AsyncIterator[tuple[int, UUID]]:
    number = 0
    async for item in items:
        number += 1
        yield number, item
