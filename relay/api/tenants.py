"""Tenants, as the operator makes and limits them. The operator sees nobody's consents and voices."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field
from sqlalchemy.ext.asyncio import AsyncConnection

from relay.api.answers import check_current, show, tell
from relay.api.bodies import read_json
from relay.api.cursors import read_place, write_place
from relay.api.deletions import carry_out, show_deletion, tell_deletion
from relay.api.keys import KeyRequest, NewKey, announce, make_key
from relay.api.retention import TenantDeletion
from relay.api.routes import Cursor, IdempotencyKey, IdInPath, IfMatch, IfNoneMatch, Limit, door, or_accepted
from relay.api.services import Here
from relay.api.texts import Asked, Name, parse_id
from relay.api.visits import Visitor
from relay.errors import UnknownObject
from storage.errors import IllegalTransition
from storage.evidence.audit import PLATFORM, append
from storage.evidence.beginnings import ObjectKind, Reason
from storage.evidence.deletions import Deletion, request_deletion
from storage.evidence.deletions import Request as Wish
from storage.paging import Page
from storage.states import TenantState
from storage.tenancy.api_keys import Scope
from storage.tenancy.limits import Limits
from storage.tenancy.tenants import (
    DEFAULT_RETENTION_DAYS,
    MAX_RETENTION_DAYS,
    Tenant,
    change_tenant,
    create_tenant,
    find_tenant,
    list_tenants,
)

router = APIRouter(prefix="/v1/operator/tenants", tags=["operator"])
_LIST = "tenants"


class LimitsRequest(Limits, Asked):
    """Limits; those that are left out are the defaults."""


class TenantRequest(Asked):
    """A new tenant."""

    name: Name
    limits: LimitsRequest = LimitsRequest()
    retention_days: Annotated[int, Field(ge=1, le=MAX_RETENTION_DAYS)] = DEFAULT_RETENTION_DAYS


class TenantChange(Asked):
    """What is to change; what is left out stays. Limits are replaced as a whole."""

    name: Name | None = None
    state: Literal["active", "suspended"] | None = None
    limits: LimitsRequest | None = None
    retention_days: Annotated[int | None, Field(ge=1, le=MAX_RETENTION_DAYS)] = None


class TenantBody(BaseModel):
    """A tenant."""

    id: UUID
    name: str
    state: TenantState
    limits: Limits
    retention_days: int
    created_at: datetime


class TenantList(BaseModel):
    """Tenants, newest first."""

    tenants: list[TenantBody]
    next_cursor: str | None


@router.get("", response_model=TenantList, **door(Scope.OPERATOR, refuses=(304,)))
async def list_all(
    request: Request, services: Here, limit: Limit = 20, cursor: Cursor = "", if_none_match: IfNoneMatch = None
) -> Response:
    """List the tenants, newest first."""
    page = Page(limit, read_place(_LIST, cursor))
    found = await services.as_operator(None, lambda connection: list_tenants(connection, page))
    shown = [show_tenant(tenant) for tenant in found.items]
    return show(request, TenantList(tenants=shown, next_cursor=write_place(_LIST, found.after)))


@router.post("", status_code=201, response_model=TenantBody, **door(Scope.OPERATOR, body=TenantRequest, refuses=(409,)))
async def create(request: Request, visit: Visitor, services: Here) -> Response:
    """Make a tenant. Its name is its idempotency key: there is never a second one of it."""
    asked = await read_json(request, TenantRequest)

    async def work(connection: AsyncConnection) -> Tenant:
        made = await create_tenant(connection, asked.name, limits=asked.limits, retention_days=asked.retention_days)
        await append(connection, PLATFORM, visit.act("tenant.created", made.id))
        return made

    made = await services.as_operator(PLATFORM, work)
    return tell(show_tenant(made), HTTPStatus.CREATED, location=f"/v1/operator/tenants/{made.id}", tagged=True)


@router.get("/{tenant}", response_model=TenantBody, **door(Scope.OPERATOR, refuses=(304, 404)))
async def read(request: Request, services: Here, tenant: IdInPath, if_none_match: IfNoneMatch = None) -> Response:
    """Show a tenant."""
    tenant_id = parse_id("tenant", tenant)
    found = await services.as_operator(tenant_id, lambda connection: _find(connection, tenant_id))
    return show(request, show_tenant(found))


@router.patch(
    "/{tenant}", response_model=TenantBody, **door(Scope.OPERATOR, body=TenantChange, refuses=(404, 409, 412))
)
async def change(
    request: Request, visit: Visitor, services: Here, tenant: IdInPath, if_match: IfMatch = None
) -> Response:
    """Rename a tenant, change its limits or retention, suspend it or let it in again."""
    asked = await read_json(request, TenantChange)
    tenant_id = parse_id("tenant", tenant)

    async def work(connection: AsyncConnection) -> Tenant:
        check_current(request, show_tenant(await _find(connection, tenant_id)))
        changed = await change_tenant(
            connection,
            tenant_id,
            name=asked.name,
            state=None if asked.state is None else TenantState(asked.state),
            limits=asked.limits,
            retention_days=asked.retention_days,
        )
        fields = [name for name in TenantChange.model_fields if getattr(asked, name) is not None]
        act = visit.act("tenant.changed", tenant_id, fields=fields, state=str(changed.state))
        await append(connection, tenant_id, act)
        return changed

    changed = await services.as_operator(tenant_id, work)
    if changed.state is TenantState.SUSPENDED:
        # Its id stands for all its keys.
        await announce(services, tenant_id)
    return tell(show_tenant(changed), tagged=True)


@router.delete("/{tenant}", **or_accepted(TenantDeletion, door(Scope.OPERATOR, refuses=(404, 409))))
async def delete(visit: Visitor, services: Here, tenant: IdInPath) -> Response:
    """Delete a tenant with everything that it has; 200 when all is done, 202 while some is still to do."""
    tenant_id = parse_id("tenant", tenant)
    await services.as_operator(tenant_id, lambda connection: _find(connection, tenant_id))

    async def work(connection: AsyncConnection) -> Deletion | None:
        wish = Wish(ObjectKind.TENANT, tenant_id, Reason.REQUESTED, visit.actor, visit.origin)
        return await request_deletion(connection, tenant_id, wish)

    begun = await services.within(tenant_id, work)
    if begun is None:
        raise UnknownObject("tenant", tenant)
    deletions = await carry_out(services, tenant_id, [begun])
    return tell_deletion(TenantDeletion(deletion=show_deletion(deletions[0])), deletions)


@router.post(
    "/{tenant}/keys",
    status_code=201,
    response_model=NewKey,
    **door(Scope.OPERATOR, body=KeyRequest, refuses=(404, 409, 410)),
)
async def create_tenant_key(
    request: Request, visit: Visitor, services: Here, tenant: IdInPath, idempotency_key: IdempotencyKey = None
) -> Response:
    """Make a tenant's key, its first one for instance; its text is in this answer and nowhere else."""
    asked = await read_json(request, KeyRequest)
    tenant_id = parse_id("tenant", tenant)
    found = await services.as_operator(tenant_id, lambda connection: _find(connection, tenant_id))
    if found.state in (TenantState.DELETING, TenantState.DELETED):
        raise IllegalTransition("tenant", found.state, "having another key")
    return await make_key(request, visit, services, tenant_id, asked, idempotency_key)


def show_tenant(tenant: Tenant) -> TenantBody:
    """A tenant as the operator sees it."""
    return TenantBody(
        id=tenant.id,
        name=tenant.name,
        state=tenant.state,
        limits=tenant.limits,
        retention_days=tenant.retention_days,
        created_at=tenant.created_at,
    )


async def _find(connection: AsyncConnection, tenant_id: UUID) -> Tenant:
    found = await find_tenant(connection, tenant_id)
    if found is None:
        raise UnknownObject("tenant", str(tenant_id))
    return found
