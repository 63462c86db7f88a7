"""How a deletion begins: the object is taken out of use, under a lock, before anything of it is destroyed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from sqlalchemy import any_, func, literal, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.evidence.audit import Act, Scalar
from storage.states import TENANT_TRANSITIONS, ConsentState, TenantState, check_transition
from storage.tables import api_keys, consents, tenants
from storage.tenancy.api_keys import Scope
from storage.voices.consents import Rejected, end_consent
from storage.voices.voices import begin_deletion


class ObjectKind(StrEnum):
    """What can be deleted."""

    VOICE = "voice"
    CONSENT = "consent"
    TENANT = "tenant"


class Reason(StrEnum):
    """Why something is deleted."""

    REQUESTED = "requested"
    WITHDRAWN = "consent_withdrawn"
    EXPIRED = "consent_expired"
    UNUSED = "retention"
    TENANT = "tenant_deleted"
    RESTORED = "restored_from_backup"
    """An old backup had brought it back."""


@dataclass(frozen=True, slots=True)
class Begun:
    """What a beginning puts on record: actions on the object, and recordings of other voices that it has cost."""

    actions: tuple[str, ...] = ()
    rejected: Sequence[Rejected] = ()


async def begin(
    connection: AsyncConnection, tenant: UUID, kind: ObjectKind, object_id: UUID, reason: Reason
) -> Begun | None:
    """Take the object out of use; what is to be put on record, or None when there is no such object (any more)."""
    if kind is ObjectKind.VOICE:
        begun = await begin_deletion(connection, tenant, object_id)
        return Begun(("voice.deletion_requested",)) if begun else None
    if kind is ObjectKind.CONSENT:
        return await _begin_consent(connection, tenant, object_id, reason)
    return await _begin_tenant(connection, tenant) if object_id == tenant else None


def reject(lost: Rejected, actor: str, origin: str) -> Act:
    """A recording that its consent's end has failed, for the record; as a refused enrolment writes it."""
    detail: dict[str, Scalar] = {"version": lost.version, "code": lost.code}
    return Act(actor, "voice.rejected", ObjectKind.VOICE, str(lost.voice), origin, detail)


async def _begin_consent(connection: AsyncConnection, tenant: UUID, consent_id: UUID, reason: Reason) -> Begun | None:
    query = select(consents.c.state).where(consents.c.tenant_id == tenant, consents.c.id == consent_id)
    state: str | None = (await connection.execute(query.with_for_update())).scalar()
    if state is None or state == ConsentState.DELETED:
        return None
    if state != ConsentState.ACTIVE:
        # Whoever ended it has put that on record.
        return Begun()
    ended = ConsentState.EXPIRED if reason is Reason.EXPIRED else ConsentState.WITHDRAWN
    rejected = (await end_consent(connection, tenant, consent_id, ended)).rejected
    return Begun((f"consent.{ended}",), rejected)


async def _begin_tenant(connection: AsyncConnection, tenant: UUID) -> Begun | None:
    query = select(tenants.c.state).where(tenants.c.id == tenant).with_for_update()
    state: str | None = (await connection.execute(query)).scalar()
    if state is None or state == TenantState.DELETED:
        return None
    if state != TenantState.DELETING:
        check_transition("tenant", TENANT_TRANSITIONS, TenantState(state), TenantState.DELETING)
        await connection.execute(update(tenants).where(tenants.c.id == tenant).values(state=TenantState.DELETING))
    # Those that may are left until the end, to see what becomes of the deletion.
    may_look = literal(Scope.ADMIN.value) == any_(api_keys.c.scopes)
    await connection.execute(
        update(api_keys)
        .where(api_keys.c.tenant_id == tenant, api_keys.c.revoked_at.is_(None), ~may_look)
        .values(revoked_at=func.now())
    )
    return Begun(("tenant.deletion_requested",))
