"""Deletions: what was asked to go, how far that is, and the receipt that proves it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Any
from uuid import UUID

import structlog
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field
from sqlalchemy.ext.asyncio import AsyncConnection

from relay.api.answers import show, tell
from relay.api.cursors import read_place, write_place
from relay.api.routes import Cursor, IdInPath, IfNoneMatch, Limit, door, open_door
from relay.api.services import Here, Services
from relay.api.texts import parse_id
from relay.api.visits import Visit, Visitor
from relay.errors import UnknownObject
from storage.cold_jobs import send_deletion
from storage.errors import StorageError
from storage.evidence.beginnings import ObjectKind, Reason
from storage.evidence.deletions import Deletion, Outcome, find_deletion, list_deletions, request_deletion
from storage.evidence.deletions import Request as Wish
from storage.evidence.jws import write_key_set
from storage.evidence.signing import load_public_keys
from storage.paging import Page
from storage.states import DeletionState
from storage.tenancy.api_keys import Scope

log = structlog.get_logger()

router = APIRouter(prefix="/v1", tags=["deletions"])
INLINE_S = 2.0
"""How long a request waits for the deletion that it has begun."""
SEND_TIMEOUT_S = 5.0
_SCOPES = (Scope.ENROL, Scope.ADMIN)
_LIST = "deletions"


class StoreBody(BaseModel):
    """How far one store is."""

    outcome: Outcome
    count: int = Field(description="How many things were removed there.")
    at: datetime
    detail: str


class DeletionBody(BaseModel):
    """A deletion as it stands; it goes on by itself until it is done."""

    id: UUID
    object_kind: ObjectKind
    object_id: UUID
    state: DeletionState
    reason: Reason
    requested_by: str
    requested_at: datetime
    completed_at: datetime | None
    stores: dict[str, StoreBody]
    receipt: str | None = Field(description="Signed, a compact JWS (RFC 7515), once it is done.")


class DeletionList(BaseModel):
    """Deletions, newest first."""

    deletions: list[DeletionBody]
    next_cursor: str | None


class PublicKeySet(BaseModel):
    """A JWK set (RFC 7517) of Ed25519 keys (RFC 8037)."""

    keys: list[dict[str, Any]]


@router.get("/deletions", response_model=DeletionList, **door(*_SCOPES, refuses=(304,)))
async def list_all(
    request: Request,
    visit: Visitor,
    services: Here,
    limit: Limit = 20,
    cursor: Cursor = "",
    if_none_match: IfNoneMatch = None,
) -> Response:
    """List the deletions, newest first."""
    page = Page(limit, read_place(_LIST, cursor))
    found = await services.within(visit.tenant, lambda connection: list_deletions(connection, visit.tenant, page))
    shown = [show_deletion(deletion) for deletion in found.items]
    return show(request, DeletionList(deletions=shown, next_cursor=write_place(_LIST, found.after)))


@router.get("/deletions/{deletion}", response_model=DeletionBody, **door(*_SCOPES, refuses=(304, 404)))
async def read_deletion(
    request: Request, visit: Visitor, services: Here, deletion: IdInPath, if_none_match: IfNoneMatch = None
) -> Response:
    """Show a deletion, with its receipt once it is done."""
    deletion_id = parse_id("deletion", deletion)
    found = await services.within(visit.tenant, lambda connection: find_deletion(connection, visit.tenant, deletion_id))
    if found is None:
        raise UnknownObject("deletion", deletion)
    return show(request, show_deletion(found))


@router.get("/receipts/keys", response_model=PublicKeySet, **open_door(304, 503))
async def read_receipt_keys(request: Request, services: Here, if_none_match: IfNoneMatch = None) -> Response:
    """Show every public key that receipts were ever signed with; it takes no key to check a receipt."""
    keys = await services.receipt_keys.get(lambda: services.within(None, load_public_keys))
    return show(request, PublicKeySet.model_validate(write_key_set(keys)))


async def begin_deletion(
    connection: AsyncConnection, visit: Visit, kind: ObjectKind, object_id: UUID
) -> Deletion | None:
    """Put a visitor's wish on record and take the object out of use; None when there is no such object."""
    wish = Wish(kind, object_id, Reason.REQUESTED, visit.actor, visit.origin)
    return await request_deletion(connection, visit.tenant, wish)


async def carry_out(services: Services, tenant: UUID, begun: Sequence[Deletion]) -> list[Deletion]:
    """Deletions after what could be done of them within INLINE_S, one after the other; the rest is Celery's to do."""
    done: dict[UUID, Deletion] = {}

    async def run() -> None:
        for deletion in begun:
            done[deletion.id] = await services.erasure.run(tenant, deletion.id)

    running = asyncio.create_task(run())
    # What takes longer is not cut off half way: it ends by itself, within the bounds that it has.
    services.keep(running)
    await asyncio.wait({running}, timeout=INLINE_S)
    came = [done.get(deletion.id, deletion) for deletion in begun]
    await _hand_over(services, tenant, [deletion for deletion in came if deletion.state is not DeletionState.DONE])
    return came


def tell_deletion(body: BaseModel, deletions: Sequence[Deletion]) -> Response:
    """200 when all is done, else 202 and where to look."""
    unfinished = [deletion for deletion in deletions if deletion.state is not DeletionState.DONE]
    if not unfinished:
        return tell(body)
    return tell(body, HTTPStatus.ACCEPTED, location=f"/v1/deletions/{unfinished[0].id}")


def show_deletion(deletion: Deletion) -> DeletionBody:
    """A deletion as clients see it."""
    stores = {
        name: StoreBody(outcome=report.outcome, count=report.count, at=report.at, detail=report.detail)
        for name, report in deletion.stores.items()
    }
    return DeletionBody(
        id=deletion.id,
        object_kind=deletion.object_kind,
        object_id=deletion.object_id,
        state=deletion.state,
        reason=deletion.reason,
        requested_by=deletion.requested_by,
        requested_at=deletion.requested_at,
        completed_at=deletion.completed_at,
        stores=stores,
        receipt=deletion.receipt,
    )


async def _hand_over(services: Services, tenant: UUID, unfinished: Sequence[Deletion]) -> None:
    """Ask Celery to go on. If it cannot be asked, nor is it for the others, since each time would be waited for: its
    regular look for unfinished deletions finds them."""
    try:
        async with asyncio.timeout(SEND_TIMEOUT_S):
            for deletion in unfinished:
                await asyncio.to_thread(send_deletion, services.celery, tenant, deletion.id)
    except (StorageError, TimeoutError) as error:
        reason = type(error).__name__
        log.warning("a deletion waits for the next look", deletions=len(unfinished), reason=reason)
