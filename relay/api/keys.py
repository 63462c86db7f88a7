"""API keys of a tenant: made, rotated and revoked by its own. A key's text is shown once."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Literal
from uuid import UUID

import structlog
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field
from sqlalchemy.ext.asyncio import AsyncConnection

from relay.api.answers import nothing, show
from relay.api.bodies import read_json
from relay.api.cursors import read_place, write_place
from relay.api.idempotency import Once, Outcome, digest_of
from relay.api.routes import Cursor, IdempotencyKey, IdInPath, IfNoneMatch, Limit, door
from relay.api.services import Here, Services
from relay.api.texts import Ahead, Asked, Name, parse_id
from relay.api.visits import Visit, Visitor
from relay.errors import UnknownObject
from storage.errors import IllegalTransition, ServerUnavailable
from storage.evidence.audit import PLATFORM, append
from storage.paging import Page
from storage.streams.broadcasts import revoke_key as tell_relays
from storage.tenancy.api_keys import MAX_OVERLAP, ApiKey, Deed, Scope, create_key, list_keys, revoke_key, rotate_key

log = structlog.get_logger()

router = APIRouter(prefix="/v1/admin/keys", tags=["keys"])
_LIST = "keys"
_MAX_OVERLAP_S = int(MAX_OVERLAP.total_seconds())

TenantScope = Literal["speak", "enrol", "admin"]
"""What a tenant's key may be used for."""


class KeyRequest(Asked):
    """A new key."""

    name: Name
    scopes: Annotated[list[TenantScope], Field(min_length=1, max_length=3)]
    expires_at: Annotated[Ahead | None, Field(description="When the key ends by itself.")] = None


class RotationRequest(Asked):
    """How long the old key works beside the new one."""

    overlap_s: Annotated[int, Field(ge=0, le=_MAX_OVERLAP_S)] = 3600


class KeyBody(BaseModel):
    """A key, without the key."""

    id: UUID
    name: str
    scopes: list[Scope]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    replaced_by: UUID | None


class NewKey(KeyBody):
    """A key that was just made."""

    key: str | None = Field(description="The key itself, this once; null where the request was done before.")


class KeyList(BaseModel):
    """Keys, newest first, those that work no more among them."""

    keys: list[KeyBody]
    next_cursor: str | None


@router.get("", response_model=KeyList, **door(Scope.ADMIN, refuses=(304,)))
async def list_all(
    request: Request,
    visit: Visitor,
    services: Here,
    limit: Limit = 20,
    cursor: Cursor = "",
    if_none_match: IfNoneMatch = None,
) -> Response:
    """List the keys, newest first."""
    page = Page(limit, read_place(_LIST, cursor))
    found = await services.within(visit.tenant, lambda connection: list_keys(connection, visit.tenant, page))
    shown = [show_key(key) for key in found.items]
    return show(request, KeyList(keys=shown, next_cursor=write_place(_LIST, found.after)))


@router.post("", status_code=201, response_model=NewKey, **door(Scope.ADMIN, body=KeyRequest, refuses=(409, 410)))
async def create(request: Request, visit: Visitor, services: Here, idempotency_key: IdempotencyKey = None) -> Response:
    """Make a key; its text is in this answer and nowhere else."""
    asked = await read_json(request, KeyRequest)
    return await make_key(request, visit, services, visit.tenant, asked, idempotency_key)


@router.post(
    "/{key}/rotate",
    status_code=201,
    response_model=NewKey,
    **door(Scope.ADMIN, body=RotationRequest, refuses=(404, 409, 410)),
)
async def rotate(
    request: Request, visit: Visitor, services: Here, key: IdInPath, idempotency_key: IdempotencyKey = None
) -> Response:
    """Make a key's successor; the old one works for a while beside it."""
    asked = await read_json(request, RotationRequest)
    key_id = parse_id("key", key)

    async def work(connection: AsyncConnection, _: UUID) -> Outcome:
        try:
            made, text = await rotate_key(connection, key_id, timedelta(seconds=asked.overlap_s))
        except IllegalTransition as error:
            if error.current == "nothing":
                raise UnknownObject("key", key) from error
            raise
        act = visit.act("key.rotated", key_id, successor=str(made.id), overlap_s=asked.overlap_s)
        await append(connection, visit.tenant, act)
        return show_new(made, text.get_secret_value())

    once = Once(services, visit.tenant, request, idempotency_key, partial(digest_of, asked))
    answer = (await once.do(work)).answer()
    # Nobody's id: relays look at their connections again, and learn when the old key ends.
    await announce(services, PLATFORM)
    return answer


@router.delete("/{key}", status_code=204, **door(Scope.ADMIN, refuses=(404,), deed=Deed.END))
async def revoke(visit: Visitor, services: Here, key: IdInPath) -> Response:
    """End a key at once; what it has opened is closed within a second."""
    key_id = parse_id("key", key)

    async def work(connection: AsyncConnection) -> bool:
        if not await revoke_key(connection, key_id):
            return False
        await append(connection, visit.tenant, visit.act("key.revoked", key_id))
        return True

    if not await services.within(visit.tenant, work):
        raise UnknownObject("key", key)
    await announce(services, key_id)
    return nothing()


async def make_key(
    request: Request, visit: Visit, services: Services, tenant: UUID, asked: KeyRequest, idempotency_key: str | None
) -> Response:
    """Make a key of a tenant, once."""

    async def work(connection: AsyncConnection, _: UUID) -> Outcome:
        key, text = await create_key(
            connection, tenant, name=asked.name, scopes=map(Scope, asked.scopes), expires_at=asked.expires_at
        )
        act = visit.act("key.created", key.id, scopes=[str(scope) for scope in order(key.scopes)])
        await append(connection, tenant, act)
        return show_new(key, text.get_secret_value())

    return (await Once(services, tenant, request, idempotency_key, partial(digest_of, asked)).do(work)).answer()


async def announce(services: Services, key_or_tenant: UUID) -> None:
    """Tell the relays that a key, or every key of a tenant, opens nothing any more.

    A relay that cannot be told now finds out within a minute.
    """
    try:
        await tell_relays(services.redis, key_or_tenant)
    except ServerUnavailable as error:
        log.warning("the relays were not told of a revoked key", key=str(key_or_tenant), reason=str(error))


def show_key(key: ApiKey) -> KeyBody:
    """A key as clients see it."""
    return KeyBody(
        id=key.id,
        name=key.name,
        scopes=order(key.scopes),
        created_at=key.created_at,
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
        replaced_by=key.replaced_by,
    )


def show_new(key: ApiKey, text: str) -> Outcome:
    """A key with its text, and without it for whoever asks again."""
    known = show_key(key).model_dump()
    return Outcome(NewKey(**known, key=text), f"/v1/admin/keys/{key.id}", kept=NewKey(**known, key=None))


def order(scopes: frozenset[Scope]) -> list[Scope]:
    """Scopes in one order."""
    return [scope for scope in Scope if scope in scopes]
