"""Aliases: a tenant's own words for its voices, which stand wherever a voice's id may."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncConnection

from relay.api.answers import nothing, show, tell
from relay.api.bodies import read_json
from relay.api.cursors import read_word, write_word
from relay.api.routes import AliasInPath, Cursor, IfNoneMatch, Limit, door
from relay.api.services import Here, Services
from relay.api.texts import Asked, is_alias, parse_id
from relay.api.visits import Visit, Visitor
from relay.errors import InvalidRequest, UnknownObject
from storage.evidence.audit import append, audit_key, hash_text
from storage.names import ALIAS_PATTERN
from storage.tenancy.api_keys import Scope
from storage.voices.aliases import list_aliases, remove_alias, set_alias

router = APIRouter(prefix="/v1/aliases", tags=["aliases"])
_LIST = "aliases"


class AliasRequest(Asked):
    """Which voice an alias stands for from now on."""

    voice: str


class AliasBody(BaseModel):
    """An alias and its voice."""

    alias: str
    voice: UUID


class AliasItem(AliasBody):
    """An alias in a list."""

    created_at: datetime


class AliasList(BaseModel):
    """Aliases in their own order."""

    aliases: list[AliasItem]
    next_cursor: str | None


@router.get("", response_model=AliasList, **door(Scope.SPEAK, Scope.ENROL, Scope.ADMIN, refuses=(304,)))
async def list_all(
    request: Request,
    visit: Visitor,
    services: Here,
    limit: Limit = 20,
    cursor: Cursor = "",
    if_none_match: IfNoneMatch = None,
) -> Response:
    """List the aliases."""
    after = read_word(_LIST, cursor)
    found = await services.within(
        visit.tenant, lambda connection: list_aliases(connection, visit.tenant, after=after, limit=limit + 1)
    )
    shown = [AliasItem(alias=item.alias, voice=item.voice_id, created_at=item.created_at) for item in found[:limit]]
    more = shown[-1].alias if len(found) > limit else None
    return show(request, AliasList(aliases=shown, next_cursor=write_word(_LIST, more)))


@router.put(
    "/{alias}", response_model=AliasBody, **door(Scope.ENROL, Scope.ADMIN, body=AliasRequest, refuses=(404, 409))
)
async def put_alias(request: Request, visit: Visitor, services: Here, alias: AliasInPath) -> Response:
    """Let an alias stand for a voice, whatever it stood for before."""
    asked = await read_json(request, AliasRequest)
    if not is_alias(alias):
        raise InvalidRequest(f"an alias is like `{ALIAS_PATTERN}`, and no id", field="alias")
    voice = parse_id("voice", asked.voice)

    async def work(connection: AsyncConnection) -> bool:
        if not await set_alias(connection, visit.tenant, alias, voice):
            return False
        await _record(connection, visit, services, "alias.set", alias, voice)
        return True

    if not await services.within(visit.tenant, work):
        raise UnknownObject("voice", asked.voice)
    return tell(AliasBody(alias=alias, voice=voice))


@router.delete("/{alias}", status_code=204, **door(Scope.ENROL, Scope.ADMIN, refuses=(404,)))
async def delete_alias(visit: Visitor, services: Here, alias: AliasInPath) -> Response:
    """Remove an alias; its voice stays."""

    async def work(connection: AsyncConnection) -> bool:
        voice = await remove_alias(connection, visit.tenant, alias) if is_alias(alias) else None
        if voice is None:
            return False
        await _record(connection, visit, services, "alias.removed", alias, voice)
        return True

    if not await services.within(visit.tenant, work):
        raise UnknownObject("alias", alias)
    return nothing()


async def _record(
    connection: AsyncConnection, visit: Visit, services: Services, action: str, alias: str, voice: UUID
) -> None:
    """On record is the voice; the alias, which may be a person's name and outlive nobody, only as a keyed hash."""
    key = await audit_key(connection, services.keyring, visit.tenant)
    await append(connection, visit.tenant, visit.act(action, voice, alias_hmac=hash_text(key, alias)))
