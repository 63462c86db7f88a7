"""The audit log of a tenant: who did what, when, to which object, from where."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from relay.api.answers import show
from relay.api.cursors import read_count, write_count
from relay.api.routes import Cursor, IfNoneMatch, Limit, door
from relay.api.services import Here
from relay.api.texts import Moment
from relay.api.visits import Visitor
from storage.evidence.audit import Entry, read_audit
from storage.tenancy.api_keys import Scope

router = APIRouter(prefix="/v1/admin/audit", tags=["audit"])
_WORD = r"^[!-~]{1,128}$"


class AuditEntry(BaseModel):
    """One entry; sequences begin at 1 and have no gaps."""

    sequence: int
    at: datetime
    actor: str
    action: str
    object_kind: str
    object_id: str
    origin: str
    detail: dict[str, Any]
    previous_hash: str = Field(description="Of the entry before, in hexadecimal.")
    hash: str


class AuditList(BaseModel):
    """Entries, oldest first."""

    entries: list[AuditEntry]
    next_cursor: str | None


@router.get("", response_model=AuditList, **door(Scope.ADMIN, refuses=(304,)))
async def list_entries(
    request: Request,
    visit: Visitor,
    services: Here,
    object_id: Annotated[
        str | None, Query(alias="object", pattern=_WORD, description="Only of the object with this id.")
    ] = None,
    action: Annotated[str | None, Query(pattern=_WORD, description="Only this action, like `voice.created`.")] = None,
    since: Annotated[Moment | None, Query(description="Not before this time.")] = None,
    until: Annotated[Moment | None, Query(description="Before this time.")] = None,
    limit: Limit = 20,
    cursor: Cursor = "",
    if_none_match: IfNoneMatch = None,
) -> Response:
    """List the audit log, oldest first; `timbrelay audit verify` checks its chain."""
    kind = f"audit {object_id} {action} {since} {until}"
    after = read_count(kind, cursor)
    found = await services.within(
        visit.tenant,
        lambda connection: read_audit(
            connection,
            visit.tenant,
            object_id=object_id,
            action=action,
            since=since,
            until=until,
            after_sequence=after,
            limit=limit + 1,
        ),
    )
    following = found[limit - 1].sequence if len(found) > limit else None
    shown = [_show(entry) for entry in found[:limit]]
    return show(request, AuditList(entries=shown, next_cursor=write_count(kind, following)))


def _show(entry: Entry) -> AuditEntry:
    return AuditEntry(
        sequence=entry.sequence,
        at=entry.at,
        actor=entry.actor,
        action=entry.action,
        object_kind=entry.object_kind,
        object_id=entry.object_id,
        origin=entry.origin,
        detail=dict(entry.detail),
        previous_hash=entry.previous_hash.hex(),
        hash=entry.hash.hex(),
    )
