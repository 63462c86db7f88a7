"""Deletions on record: who asked for what to go, how far each store is, and what proves that it is gone.

The row is there before anything is destroyed, in one transaction with the object's state, so that a deletion that was
acknowledged is carried out whatever dies; whoever asks again is given the same one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Row, insert, literal, select, update
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.evidence.audit import Act, append_all
from storage.evidence.beginnings import ObjectKind as ObjectKind
from storage.evidence.beginnings import Reason as Reason
from storage.evidence.beginnings import begin, reject
from storage.paging import Page, Position, Slice, cut, turn_to
from storage.states import DELETION_TRANSITIONS, DeletionState, check_transition
from storage.tables import deletions

DETAIL_CHARACTERS = 200


class Outcome(StrEnum):
    """How far a store is."""

    DONE = "done"
    PENDING = "pending"
    """Nothing went wrong; something has to end by itself first."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class StoreReport:
    """What became of the object in one place where it was kept."""

    outcome: Outcome
    count: int
    """How many things were removed there, all attempts together."""
    at: datetime
    detail: str = ""
    """What is waited for or went wrong; holds no name and nothing of anybody's."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """A deletion, as it stands."""

    id: UUID
    tenant_id: UUID
    object_kind: ObjectKind
    object_id: UUID
    state: DeletionState
    reason: Reason
    requested_by: str
    requested_at: datetime
    completed_at: datetime | None
    stores: Mapping[str, StoreReport]
    receipt: str | None
    """The signed receipt, once it is done (`storage.evidence.receipts`)."""
    attempts: int
    next_attempt_at: datetime


@dataclass(frozen=True, slots=True)
class Request:
    """Who wants what gone, and why."""

    object_kind: ObjectKind
    object_id: UUID
    reason: Reason
    actor: str
    """As in the audit log: `key:<id>`, `operator:<id>`, `system:<task>`."""
    origin: str
    """The caller's address, `cli` or `celery`."""


async def request_deletion(connection: AsyncConnection, tenant: UUID, request: Request) -> Deletion | None:
    """Put a deletion on record, and from this transaction's end on nothing is done with the object any more.

    Whoever comes second gets the first one's deletion. None when the tenant has no such object. Writes the audit log,
    so this is among the last steps of the transaction. A consent that is active is withdrawn with it (or expires).
    """
    (requested,) = await request_deletions(connection, tenant, [request])
    return requested


async def request_deletions(
    connection: AsyncConnection, tenant: UUID, requests: Sequence[Request]
) -> list[Deletion | None]:
    """The same for several objects, of which none is on record before all are locked: two who delete in different
    orders would otherwise wait for each other's place in the audit log."""
    found: list[Deletion | None] = []
    acts: list[Act] = []
    for request in requests:
        deletion, begun = await _request(connection, tenant, request)
        found.append(deletion)
        acts += begun
    await append_all(connection, tenant, acts)
    return found


async def _request(connection: AsyncConnection, tenant: UUID, request: Request) -> tuple[Deletion | None, list[Act]]:
    kind, object_id = request.object_kind, request.object_id
    if known := await find_deletion_of(connection, tenant, kind, object_id):
        return known, []
    begun = await begin(connection, tenant, kind, object_id, request.reason)
    if begun is None:
        # Between the look and the lock another may have begun it.
        return await find_deletion_of(connection, tenant, kind, object_id), []
    values = {"id": uuid4(), "tenant_id": tenant, "object_kind": kind, "object_id": object_id}
    values |= {"reason": request.reason, "requested_by": request.actor}
    made = (await connection.execute(insert(deletions).values(**values).returning(deletions))).one()
    detail = {"deletion": str(made.id), "reason": str(request.reason)}
    acts = [Act(request.actor, action, kind, str(object_id), request.origin, detail) for action in begun.actions]
    return _deletion(made), acts + [reject(lost, request.actor, request.origin) for lost in begun.rejected]


async def find_deletion(connection: AsyncConnection, tenant: UUID, deletion_id: UUID) -> Deletion | None:
    """The tenant's deletion with this id."""
    query = select(deletions).where(deletions.c.tenant_id == tenant, deletions.c.id == deletion_id)
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else _deletion(row)


async def find_deletion_of(
    connection: AsyncConnection, tenant: UUID, kind: ObjectKind, object_id: UUID
) -> Deletion | None:
    """The deletion of an object, if one was asked for."""
    query = select(deletions).where(
        deletions.c.tenant_id == tenant, deletions.c.object_kind == kind, deletions.c.object_id == object_id
    )
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else _deletion(row)


async def list_deletions(connection: AsyncConnection, tenant: UUID, page: Page) -> Slice[Deletion]:
    """The tenant's deletions, newest first."""
    query = select(deletions).where(deletions.c.tenant_id == tenant)
    rows = (await connection.execute(turn_to(query, page, deletions.c.requested_at, deletions.c.id))).all()
    return cut(rows, page, _deletion, _place)


async def due_deletions(connection: AsyncConnection, tenant: UUID, now: datetime, limit: int = 100) -> list[UUID]:
    """Deletions that are not done and whose next attempt is due, the longest due first."""
    query = (
        select(deletions.c.id)
        .where(
            deletions.c.tenant_id == tenant,
            deletions.c.state != DeletionState.DONE,
            deletions.c.next_attempt_at <= now,
        )
        .order_by(deletions.c.next_attempt_at, deletions.c.id)
        .limit(limit)
    )
    return list((await connection.execute(query)).scalars())


async def begin_attempt(
    connection: AsyncConnection, tenant: UUID, deletion_id: UUID, until: datetime
) -> Deletion | None:
    """Count an attempt, and let nobody else find it due before `until`; None when there is no such deletion."""
    statement = (
        update(deletions)
        .where(deletions.c.tenant_id == tenant, deletions.c.id == deletion_id, deletions.c.state != DeletionState.DONE)
        .values(attempts=deletions.c.attempts + 1, next_attempt_at=until)
        .returning(deletions)
    )
    row = (await connection.execute(statement)).one_or_none()
    return await find_deletion(connection, tenant, deletion_id) if row is None else _deletion(row)


async def note_store(connection: AsyncConnection, deletion_id: UUID, store: str, report: StoreReport) -> None:
    """Keep a store's report beside those of the others; two who report at once do not undo each other's.

    What comes after the receipt changes nothing: the record stays what was signed.
    """
    merged = deletions.c.stores.concat(literal({store: _write(report)}, JSONB))
    not_over = deletions.c.id == deletion_id, deletions.c.state != DeletionState.DONE
    await connection.execute(update(deletions).where(*not_over).values(stores=merged))


async def lock_deletion(connection: AsyncConnection, tenant: UUID, deletion_id: UUID) -> Deletion:
    """The deletion, which nobody else changes before this transaction ends."""
    query = select(deletions).where(deletions.c.tenant_id == tenant, deletions.c.id == deletion_id)
    return _deletion((await connection.execute(query.with_for_update())).one())


async def postpone(connection: AsyncConnection, deletion: Deletion, next_attempt_at: datetime) -> None:
    """Some store is not empty yet; the deletion, which is locked, is tried again."""
    await _move(connection, deletion, DeletionState.PARTIAL, next_attempt_at=next_attempt_at)


async def complete(
    connection: AsyncConnection, deletion: Deletion, receipt: str, stores: Mapping[str, StoreReport], at: datetime
) -> None:
    """Every store is empty; the deletion, which is locked, is over."""
    written = {name: _write(report) for name, report in stores.items()}
    await _move(connection, deletion, DeletionState.DONE, completed_at=at, receipt=receipt, stores=written)


async def _move(connection: AsyncConnection, deletion: Deletion, wanted: DeletionState, **values: object) -> None:
    check_transition("deletion", DELETION_TRANSITIONS, deletion.state, wanted)
    await connection.execute(update(deletions).where(deletions.c.id == deletion.id).values(state=wanted, **values))


def _write(report: StoreReport) -> dict[str, object]:
    return {**asdict(report), "at": report.at.isoformat(), "detail": report.detail[:DETAIL_CHARACTERS]}


def _deletion(row: Row[Any]) -> Deletion:
    stores = {
        name: StoreReport(
            Outcome(report["outcome"]), report["count"], datetime.fromisoformat(report["at"]), report["detail"]
        )
        for name, report in row.stores.items()
    }
    return Deletion(
        id=row.id,
        tenant_id=row.tenant_id,
        object_kind=ObjectKind(row.object_kind),
        object_id=row.object_id,
        state=DeletionState(row.state),
        reason=Reason(row.reason),
        requested_by=row.requested_by,
        requested_at=row.requested_at,
        completed_at=row.completed_at,
        stores=stores,
        receipt=row.receipt,
        attempts=row.attempts,
        next_attempt_at=row.next_attempt_at,
    )


def _place(deletion: Deletion) -> Position:
    return deletion.requested_at, deletion.id
