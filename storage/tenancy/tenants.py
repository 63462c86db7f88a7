"""Tenants, as the operator sees them all, and each sees itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Row, exists, func, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.database import Database
from storage.errors import IllegalTransition, InvalidValue, NameTaken
from storage.names import check_name
from storage.paging import Page, Position, Slice, cut, turn_to
from storage.states import TENANT_TRANSITIONS, TenantState, check_transition
from storage.tables import tenants
from storage.tenancy.limits import Limits

_WALK = 500
DEFAULT_RETENTION_DAYS = 365
MAX_RETENTION_DAYS = 1095
"""Three years after the last use: the bound of 740 ILCS 14/15(a)."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """A customer of the service."""

    id: UUID
    name: str
    state: TenantState
    limits: Limits
    retention_days: int
    """How long a voice that is not used is kept."""
    created_at: datetime


async def create_tenant(
    connection: AsyncConnection,
    name: str,
    *,
    limits: Limits | None = None,
    retention_days: int = DEFAULT_RETENTION_DAYS,
) -> Tenant:
    """Make a tenant, as the operator; raises InvalidValue or NameTaken."""
    row = {"id": uuid4(), "name": check_name(name), "retention_days": check_retention(retention_days)}
    row["limits"] = (limits or Limits()).model_dump(exclude_defaults=True)
    statement = upsert(tenants).values(**row).on_conflict_do_nothing(index_elements=["name"]).returning(tenants)
    made = (await connection.execute(statement)).one_or_none()
    if made is None:
        raise NameTaken("tenant")
    return _tenant(made)


async def find_tenant(connection: AsyncConnection, tenant: UUID) -> Tenant | None:
    """The tenant; as the operator any, else only one's own. A deleted one is found, and says so."""
    row = (await connection.execute(select(tenants).where(tenants.c.id == tenant))).one_or_none()
    return None if row is None else _tenant(row)


async def find_tenant_named(connection: AsyncConnection, name: str) -> Tenant | None:
    """The tenant of this name, as the operator."""
    row = (await connection.execute(select(tenants).where(tenants.c.name == check_name(name)))).one_or_none()
    return None if row is None else _tenant(row)


async def list_tenants(connection: AsyncConnection, page: Page) -> Slice[Tenant]:
    """All tenants that are not deleted, newest first, as the operator."""
    query = select(tenants).where(tenants.c.state != TenantState.DELETED)
    rows = (await connection.execute(turn_to(query, page, tenants.c.created_at, tenants.c.id))).all()
    return cut(rows, page, _tenant, _place)


async def walk_tenants(database: Database, *, deleted: bool) -> AsyncIterator[UUID]:
    """Every tenant there is, and with `deleted` every one there ever was, by id, a page to a transaction of its own."""
    last = UUID(int=0)
    while True:
        query = select(tenants.c.id).where(tenants.c.id > last).order_by(tenants.c.id).limit(_WALK)
        if not deleted:
            query = query.where(tenants.c.state != TenantState.DELETED)
        async with database.transaction(operator=True) as connection:
            found = (await connection.execute(query)).scalars().all()
        for tenant in found:
            yield tenant
        if len(found) < _WALK:
            return
        last = found[-1]


async def change_tenant(
    connection: AsyncConnection,
    tenant: UUID,
    *,
    name: str | None = None,
    state: TenantState | None = None,
    limits: Limits | None = None,
    retention_days: int | None = None,
) -> Tenant:
    """Change what is given, as the operator; raises InvalidValue, NameTaken or IllegalTransition."""
    found = (await connection.execute(select(tenants).where(tenants.c.id == tenant).with_for_update())).one_or_none()
    current = None if found is None else TenantState(found.state)
    if state is not None and state is not current:
        check_transition("tenant", TENANT_TRANSITIONS, current, state)
    elif current in (None, TenantState.DELETED):
        raise IllegalTransition("tenant", current or "nothing", "changed")
    given: dict[str, Any] = {"state": state}
    given["name"] = None if name is None else await _free_name(connection, tenant, name)
    given["limits"] = None if limits is None else limits.model_dump(exclude_defaults=True)
    given["retention_days"] = None if retention_days is None else check_retention(retention_days)
    given["deleted_at"] = func.now() if state is TenantState.DELETED else None
    return await _update(connection, tenant, {field: value for field, value in given.items() if value is not None})


async def hold_tenant(connection: AsyncConnection, tenant: UUID) -> None:
    """Before anything is made for a tenant: its deletion begins before this, or after this transaction's end.

    Raises IllegalTransition for a tenant that is going or gone: what was made then, its deletion would not find.
    """
    query = select(tenants.c.state).where(tenants.c.id == tenant).with_for_update(read=True, key_share=True)
    state: str | None = (await connection.execute(query)).scalar()
    if state in (None, TenantState.DELETING, TenantState.DELETED):
        raise IllegalTransition("tenant", state or "nothing", "something new")


async def set_retention(connection: AsyncConnection, tenant: UUID, days: int) -> Tenant:
    """How many days an unused voice is kept, as the tenant itself; raises InvalidValue."""
    return await _update(connection, tenant, {"retention_days": check_retention(days)})


def check_retention(days: int) -> int:
    """Raises InvalidValue outside 1 to MAX_RETENTION_DAYS."""
    if not 1 <= days <= MAX_RETENTION_DAYS:
        raise InvalidValue("retention_days", f"must be 1 to {MAX_RETENTION_DAYS} days")
    return days


async def _free_name(connection: AsyncConnection, tenant: UUID, name: str) -> str:
    query = select(exists().where(tenants.c.name == check_name(name), tenants.c.id != tenant))
    if (await connection.execute(query)).scalar():
        raise NameTaken("tenant")
    return name


async def _update(connection: AsyncConnection, tenant: UUID, values: dict[str, Any]) -> Tenant:
    if not values:
        return _tenant((await connection.execute(select(tenants).where(tenants.c.id == tenant))).one())
    statement = update(tenants).where(tenants.c.id == tenant).values(**values).returning(tenants)
    row = (await connection.execute(statement)).one_or_none()
    if row is None:
        raise IllegalTransition("tenant", "nothing", "changed")
    return _tenant(row)


def _tenant(row: Row[Any]) -> Tenant:
    limits = Limits.model_validate(row.limits)
    return Tenant(row.id, row.name, TenantState(row.state), limits, row.retention_days, row.created_at)


def _place(tenant: Tenant) -> Position:
    return tenant.created_at, tenant.id
