"""What a tenant decides and knows of itself: how long voices are kept, its limits, and its own end."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field
from sqlalchemy.ext.asyncio import AsyncConnection

from relay.api.answers import check_current, show, tell
from relay.api.bodies import read_json
from relay.api.deletions import DeletionBody, carry_out, show_deletion, tell_deletion
from relay.api.routes import IfMatch, IfNoneMatch, door, or_accepted
from relay.api.services import Here
from relay.api.texts import Asked
from relay.api.visits import Visit, Visitor
from relay.errors import RequestRefused, UnknownObject
from storage.evidence.audit import append
from storage.evidence.beginnings import ObjectKind, Reason
from storage.evidence.deletions import Deletion, request_deletion
from storage.evidence.deletions import Request as Wish
from storage.tenancy.api_keys import Scope
from storage.tenancy.limits import Limits
from storage.tenancy.tenants import MAX_RETENTION_DAYS, Tenant, find_tenant, set_retention

router = APIRouter(prefix="/v1/admin", tags=["tenant"])


class Retention(Asked):
    """How long a voice that nobody uses is kept."""

    days: Annotated[int, Field(ge=1, le=MAX_RETENTION_DAYS, description="Since its last use.")]


class TenantDeletion(BaseModel):
    """The deletion of a tenant, with everything that it has."""

    deletion: DeletionBody


@router.get("/retention", response_model=Retention, **door(Scope.ADMIN, refuses=(304,)))
async def read_retention(
    request: Request, visit: Visitor, services: Here, if_none_match: IfNoneMatch = None
) -> Response:
    """Show after how many days without use a voice is deleted."""
    found = await services.within(visit.tenant, lambda connection: find_own(connection, visit))
    return show(request, Retention(days=found.retention_days))


@router.put("/retention", response_model=Retention, **door(Scope.ADMIN, body=Retention, refuses=(409, 412)))
async def put_retention(request: Request, visit: Visitor, services: Here, if_match: IfMatch = None) -> Response:
    """Decide after how many days without use a voice is deleted."""
    asked = await read_json(request, Retention)

    async def work(connection: AsyncConnection) -> Tenant:
        before = await find_own(connection, visit)
        check_current(request, Retention(days=before.retention_days))
        changed = await set_retention(connection, visit.tenant, asked.days)
        act = visit.act("retention.changed", visit.tenant, before=before.retention_days, days=asked.days)
        await append(connection, visit.tenant, act)
        return changed

    changed = await services.within(visit.tenant, work)
    return tell(Retention(days=changed.retention_days), tagged=True)


@router.get("/limits", response_model=Limits, **door(Scope.ADMIN, refuses=(304,)))
async def read_limits(request: Request, visit: Visitor, services: Here, if_none_match: IfNoneMatch = None) -> Response:
    """Show how much of the service the tenant may use; the operator decides."""
    return show(request, visit.caller.limits)


@router.delete("/tenant", **or_accepted(TenantDeletion, door(Scope.ADMIN, refuses=(404, 409))))
async def delete_tenant(
    visit: Visitor,
    services: Here,
    confirm: Annotated[str, Query(max_length=200, description="The tenant's name, to say that this is meant.")],
) -> Response:
    """Delete the tenant: every voice, consent and key that it has. Nothing of it comes back.

    Keys with the scope `admin` go on working until the end, to see what becomes of it.
    """

    async def work(connection: AsyncConnection) -> Deletion | None:
        if (await find_own(connection, visit)).name != confirm:
            raise RequestRefused(409, "not_confirmed", "`confirm` is not the tenant's name", field="confirm")
        wish = Wish(ObjectKind.TENANT, visit.tenant, Reason.REQUESTED, visit.actor, visit.origin)
        return await request_deletion(connection, visit.tenant, wish)

    begun = await services.within(visit.tenant, work)
    if begun is None:
        raise UnknownObject("tenant", str(visit.tenant))
    deletions = await carry_out(services, visit.tenant, [begun])
    return tell_deletion(TenantDeletion(deletion=show_deletion(deletions[0])), deletions)


async def find_own(connection: AsyncConnection, visit: Visit) -> Tenant:
    """The visitor's tenant; raises UnknownObject when it has just been deleted."""
    found = await find_tenant(connection, visit.tenant)
    if found is None:
        raise UnknownObject("tenant", str(visit.tenant))
    return found
