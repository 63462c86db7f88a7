"""API keys: shown once, kept as their SHA-256, until they expire or are revoked.

A key has 256 random bits, so a plain hash is as good as a slow one: there is nothing to guess (OWASP, "Password Storage
Cheat Sheet", is about secrets that people choose).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid4

from pydantic import SecretStr
from sqlalchemy import ColumnElement, Row, and_, any_, func, insert, literal, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.database import Database
from storage.errors import IllegalTransition, InvalidValue
from storage.names import check_name
from storage.paging import Page, Position, Slice, cut, turn_to
from storage.states import TenantState
from storage.tables import api_keys, tenants
from storage.tenancy.limits import Limits

KEY_PREFIX = "tr_"
MAX_OVERLAP = timedelta(days=30)
"""The longest that a rotated key works beside its successor."""
_KEY_TEXT_LIMIT = 128


class Scope(StrEnum):
    """What a key may be used for."""

    SPEAK = "speak"
    """Speech, and reading voices."""
    ENROL = "enrol"
    """Consents, voices, aliases, deletions, exports."""
    ADMIN = "admin"
    """Everything of its tenant: keys, audit, usage, retention, the tenant's deletion."""
    OPERATOR = "operator"
    """The service's own: tenants and their limits."""


class Deed(StrEnum):
    """What is done with a key."""

    READ = "read"
    END = "end"
    """What people's rights need, and the safety of keys: delete a voice, withdraw a consent, revoke a key."""
    REMOVE = "remove"
    """Take anything else away: an alias, the tenant itself."""
    CHANGE = "change"
    """Make or change something."""
    SPEAK = "speak"


@dataclass(frozen=True, slots=True)
class Permit:
    """What a tenant's state leaves its keys."""

    scopes: frozenset[Scope]
    deeds: frozenset[Deed]


PERMITS: Mapping[TenantState, Permit] = {
    TenantState.ACTIVE: Permit(frozenset(Scope), frozenset(Deed)),
    # Whoever owes the service something still owes people an answer: GDPR, Art. 7(3), 15 and 17.
    TenantState.SUSPENDED: Permit(frozenset(Scope), frozenset({Deed.READ, Deed.END})),
    # To see what becomes of the deletion, and to end more of it.
    TenantState.DELETING: Permit(frozenset({Scope.ADMIN}), frozenset({Deed.READ, Deed.END, Deed.REMOVE})),
    TenantState.DELETED: Permit(frozenset(), frozenset()),
}
"""The one table of what the keys of a tenant in each state are good for."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key, without the key."""

    id: UUID
    tenant_id: UUID | None
    """None: the operator's."""
    name: str
    scopes: frozenset[Scope]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    replaced_by: UUID | None


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and what they may."""

    key_id: UUID
    tenant: UUID | None
    scopes: frozenset[Scope]
    expires_at: datetime | None
    limits: Limits
    tenant_state: TenantState

    def may(self, deed: Deed) -> bool:
        """Whether the tenant's state permits it; scopes are asked for apart."""
        return deed in PERMITS[self.tenant_state].deeds


def hash_key(key: str) -> bytes:
    """The 32 bytes under which a key is kept; of anything at all, since a client may send half a surrogate pair."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


async def authenticate(database: Database, key: str) -> Caller | None:
    """Whose key this is; None for one that is malformed, unknown, expired or revoked, or whose tenant is deleted.

    Its scopes are those that PERMITS leaves it; what else the tenant's state permits is for the doors to ask.
    """
    if not key.startswith(KEY_PREFIX) or len(key) > _KEY_TEXT_LIMIT or not key.isascii():
        return None
    hashed = hash_key(key)
    query = _with_tenants(select(api_keys, tenants.c.state, tenants.c.limits)).where(
        api_keys.c.key_hash == hashed, *_valid()
    )
    async with database.transaction(key_hash=hashed) as connection:
        row = (await connection.execute(query)).one_or_none()
    # The index finds a row by its hash; that the hash is this key's is said here, in constant time.
    if row is None or not hmac.compare_digest(row.key_hash, hashed):
        return None
    return _caller(row)


async def create_key(
    connection: AsyncConnection,
    tenant: UUID | None,
    *,
    name: str,
    scopes: Iterable[Scope],
    expires_at: datetime | None,
) -> tuple[ApiKey, SecretStr]:
    """Make a key; its text is given this once. Raises InvalidValue.

    The tenant's own transaction makes its keys, the operator's any.
    """
    granted = frozenset(scopes)
    if not granted or (Scope.OPERATOR in granted) != (tenant is None):
        raise InvalidValue("scopes", "must not be empty, and `operator` is for keys without a tenant, and theirs alone")
    text = SecretStr(KEY_PREFIX + secrets.token_urlsafe(32))
    row: dict[str, object] = {"id": uuid4(), "tenant_id": tenant, "key_hash": hash_key(text.get_secret_value())}
    row |= {"name": name and check_name(name), "scopes": sorted(granted), "expires_at": expires_at}
    made = (await connection.execute(insert(api_keys).values(**row).returning(api_keys))).one()
    return _key(made), text


async def rotate_key(connection: AsyncConnection, key_id: UUID, overlap: timedelta) -> tuple[ApiKey, SecretStr]:
    """Make a key's successor, of the same name, scopes and life; the old one works for `overlap` more, at most.

    Raises InvalidValue for the overlap, and IllegalTransition for a key that works no more or was rotated before.
    """
    if not timedelta() <= overlap <= MAX_OVERLAP:
        raise InvalidValue("overlap", f"must be 0 to {MAX_OVERLAP.days} days")
    query = select(api_keys).where(api_keys.c.id == key_id).with_for_update()
    old = _check_rotatable((await connection.execute(query)).one_or_none())
    now = datetime.now(UTC)
    life = None if old.expires_at is None else now + (old.expires_at - old.created_at)
    new, text = await create_key(
        connection, old.tenant_id, name=old.name, scopes=map(Scope, old.scopes), expires_at=life
    )
    ends = func.least(api_keys.c.expires_at, now + overlap)
    await connection.execute(
        update(api_keys).where(api_keys.c.id == key_id).values(expires_at=ends, replaced_by=new.id)
    )
    return new, text


async def revoke_key(connection: AsyncConnection, key_id: UUID) -> bool:
    """End a key at once; False when there is none with this id that is not revoked."""
    statement = (
        update(api_keys).where(api_keys.c.id == key_id, api_keys.c.revoked_at.is_(None)).values(revoked_at=func.now())
    )
    return (await connection.execute(statement)).rowcount == 1


async def list_keys(connection: AsyncConnection, tenant: UUID | None, page: Page) -> Slice[ApiKey]:
    """A tenant's keys, or the operator's own, newest first; those that work no more as well."""
    query = select(api_keys).where(api_keys.c.tenant_id == tenant)
    rows = (await connection.execute(turn_to(query, page, api_keys.c.created_at, api_keys.c.id))).all()
    return cut(rows, page, _key, _place)


async def find_ends(
    database: Database, key_ids: Collection[UUID], deed: Deed = Deed.READ
) -> dict[UUID, datetime | None]:
    """Which of these keys, of whatever tenants, are still good for something, or for this, and when each expires.

    Asked as the operator. A key that was rotated got its time while it was in use.
    """
    query = _with_tenants(select(api_keys.c.id, api_keys.c.expires_at)).where(api_keys.c.id.in_(key_ids), *_valid(deed))
    if deed is Deed.SPEAK:
        query = query.where(literal(str(Scope.SPEAK)) == any_(api_keys.c.scopes))
    async with database.transaction(operator=True) as connection:
        return {row.id: row.expires_at for row in await connection.execute(query)}


def _with_tenants(query: Any) -> Any:
    return query.select_from(api_keys).join(tenants, tenants.c.id == api_keys.c.tenant_id, isouter=True)


def _valid(deed: Deed = Deed.READ) -> tuple[ColumnElement[bool], ...]:
    """Every state that permits anything permits reading."""
    unexpired = or_(api_keys.c.expires_at.is_(None), api_keys.c.expires_at > func.now())
    permits = [tenants.c.state != state for state, permit in PERMITS.items() if deed not in permit.deeds]
    served = or_(api_keys.c.tenant_id.is_(None), and_(*permits))
    return api_keys.c.revoked_at.is_(None), unexpired, served


def _check_rotatable(row: Row[Any] | None) -> Row[Any]:
    state = "nothing"
    if row is not None:
        expired = row.expires_at is not None and row.expires_at <= datetime.now(UTC)
        state = "revoked" if row.revoked_at else "rotated" if row.replaced_by else "expired" if expired else ""
    if row is None or state:
        raise IllegalTransition("API key", state, "rotated")
    return row


def _caller(row: Row[Any]) -> Caller:
    state = TenantState.ACTIVE if row.state is None else TenantState(row.state)
    scopes = frozenset(map(Scope, row.scopes)) & PERMITS[state].scopes
    return Caller(row.id, row.tenant_id, scopes, row.expires_at, Limits.model_validate(row.limits or {}), state)


def _key(row: Row[Any]) -> ApiKey:
    scopes = frozenset(map(Scope, row.scopes))
    times = {"created_at": row.created_at, "expires_at": row.expires_at, "revoked_at": row.revoked_at}
    return ApiKey(row.id, row.tenant_id, row.name, scopes, replaced_by=row.replaced_by, **times)


def _place(key: ApiKey) -> Position:
    return key.created_at, key.id
