"""`POST /access-token`: a key that may do nothing but speak, and ends by itself: for browsers and telephones.

It is a key of the tenant like any other, listed and revoked with them (docs/api.md); whoever has one cannot make more.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.requests import Request
from starlette.responses import Response

from relay.api.answers import tell
from relay.api.services import Services
from relay.api.visits import Visit
from relay.dialects.cartesia.bodies import read_body
from relay.dialects.cartesia.keys import let_in
from relay.dialects.cartesia.styles import Flag
from relay.errors import InvalidRequest, Refused, RequestRefused
from storage.evidence.audit import append, lock
from storage.tables import api_keys
from storage.tenancy.api_keys import Deed, Scope, create_key

NAME = "Cartesia access token"
MAX_LIFE_S = 3600
MAX_TOKENS = 1000
"""Of a tenant, as long as they live."""
_RETRY_MS = 60_000


class Grants(BaseModel):
    """What the token is for; there is only speech here."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    tts: Flag = None
    stt: Flag = None
    agent: Flag = None


class TokenRequest(BaseModel):
    """A token that is wanted."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    grants: Grants | None = None
    expires_in: Annotated[int | None, Field(ge=1, le=MAX_LIFE_S, description="Seconds.")] = None


class TokenBody(BaseModel):
    """The token, this once."""

    token: str


@dataclass(frozen=True, slots=True)
class TokensDoor:
    """Makes tokens."""

    services: Services

    async def create(self, request: Request) -> Response:
        """Make one; it lives no longer than the key that made it."""
        visit = await let_in(self.services, request, frozenset({Scope.SPEAK}), Deed.CHANGE)
        asked = await read_body(request, TokenRequest)
        _check_grants(asked.grants)
        life = timedelta(seconds=asked.expires_in or MAX_LIFE_S)

        async def work(connection: AsyncConnection) -> TokenBody:
            return TokenBody(token=await make_token(connection, visit, life))

        return tell(await self.services.within(visit.tenant, work))


async def make_token(connection: AsyncConnection, visit: Visit, life: timedelta) -> str:
    """A token of the visitor's tenant; raises RequestRefused to a token, and Refused when there are too many."""
    await lock(connection, f"access tokens {visit.tenant}")
    await _check_maker(connection, visit)
    await _check_count(connection, visit.tenant)
    ends = datetime.now(UTC) + life
    if visit.caller.expires_at is not None:
        ends = min(ends, visit.caller.expires_at)
    made, text = await create_key(connection, visit.tenant, name=NAME, scopes=[Scope.SPEAK], expires_at=ends)
    act = visit.act("key.created", made.id, scopes=[str(Scope.SPEAK)], expires_at=ends.isoformat(timespec="seconds"))
    await append(connection, visit.tenant, act)
    return text.get_secret_value()


async def _check_maker(connection: AsyncConnection, visit: Visit) -> None:
    name = await connection.scalar(select(api_keys.c.name).where(api_keys.c.id == visit.caller.key_id))
    if name == NAME:
        text = "an access token makes no others: ask for it with the API key, on your server"
        raise RequestRefused(403, "insufficient_scope", text, field="Authorization")


async def _check_count(connection: AsyncConnection, tenant: UUID) -> None:
    live = (api_keys.c.tenant_id == tenant, api_keys.c.name == NAME, api_keys.c.expires_at > func.now())
    query = select(func.count()).select_from(api_keys).where(*live, api_keys.c.revoked_at.is_(None))
    if (await connection.scalar(query) or 0) >= MAX_TOKENS:
        text = f"you have {MAX_TOKENS:,} access tokens that have not ended yet; ask for shorter lives (`expires_in`)"
        raise Refused("rate_limited", text, retry_after_ms=_RETRY_MS)


def _check_grants(grants: Grants | None) -> None:
    if grants is None:
        return
    for name in ("stt", "agent"):
        if getattr(grants, name):
            raise InvalidRequest(f"`grants.{name}`: there is only speech here; ask for `tts`", field=f"grants.{name}")
    if not grants.tts:
        raise InvalidRequest("`grants.tts` must be true: a token without it opens nothing", field="grants.tts")
