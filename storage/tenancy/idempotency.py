"""Idempotency keys: a request that is sent twice is done once, and answered twice.

The header and its meaning are those of the IETF's draft-ietf-httpapi-idempotency-key-header: another request under a
known key is refused, and so is the same one while the first is under way. What is kept of a request is an HMAC under a
key of the tenant's, since the plain hash of a recording would be a fingerprint of what a person has said.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Row, delete, func, null, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.encryption.keyring import Keyring
from storage.errors import IdempotencyBusy, IdempotencyConflict, InvalidValue
from storage.evidence.audit import audit_key
from storage.tables import idempotency_keys

TTL = timedelta(hours=24)
"""How long a key is remembered after it came first."""
LEASE = timedelta(seconds=60)
"""How long a request that gives no sign is taken to be under way; after that, whoever asks again takes it over."""
_KEY = re.compile(r"[!-~]{1,255}")


@dataclass(frozen=True, slots=True)
class Begun:
    """The request is the caller's to do; what it makes gets this id, also when an earlier try broke off."""

    object_id: UUID


@dataclass(frozen=True, slots=True)
class Finished:
    """The request was done, and answered so; without a response when what it made is deleted."""

    status: int
    response: dict[str, Any] | None


async def begin(
    connection: AsyncConnection, keyring: Keyring, tenant: UUID, key: str, fingerprint: bytes
) -> Begun | Finished:
    """Claim a key for a request, or say how it was answered; commit before the work is begun.

    `fingerprint` is what tells requests apart: method, path and a hash of the body. Raises InvalidValue,
    IdempotencyConflict or IdempotencyBusy.
    """
    if not _KEY.fullmatch(key):
        raise InvalidValue("idempotency_key", "must be 1 to 255 printable ASCII characters without spaces")
    keyed = await _hash(connection, keyring, tenant, fingerprint)
    row = {"tenant_id": tenant, "key": key, "fingerprint": keyed, "object_id": uuid4()}
    row["expires_at"] = func.now() + TTL
    statement = upsert(idempotency_keys).values(**row).on_conflict_do_nothing().returning(idempotency_keys.c.object_id)
    made = (await connection.execute(statement)).scalar()
    if made is not None:
        return Begun(made)
    return await _follow(connection, tenant, key, row)


async def finish(connection: AsyncConnection, tenant: UUID, key: str, status: int, response: dict[str, Any]) -> None:
    """Note how the request was answered, in the transaction of its work; the response must hold no secret."""
    values = {"status": status, "response": response}
    await connection.execute(update(idempotency_keys).where(*_unanswered(tenant, key)).values(**values))


async def abandon(connection: AsyncConnection, tenant: UUID, key: str) -> None:
    """Forget a request that has done nothing, so that it can be sent again at once."""
    await connection.execute(delete(idempotency_keys).where(*_unanswered(tenant, key)))


async def sweep(connection: AsyncConnection, tenant: UUID, limit: int = 1000) -> int:
    """Forget up to `limit` keys whose time is over; returns how many."""
    over = (
        select(idempotency_keys.c.key)
        .where(idempotency_keys.c.tenant_id == tenant, idempotency_keys.c.expires_at <= func.now())
        .limit(limit)
    )
    statement = delete(idempotency_keys).where(idempotency_keys.c.tenant_id == tenant, idempotency_keys.c.key.in_(over))
    return (await connection.execute(statement)).rowcount


async def _hash(connection: AsyncConnection, keyring: Keyring, tenant: UUID, fingerprint: bytes) -> bytes:
    key = await audit_key(connection, keyring, tenant)
    return hmac.new(key.reveal(), b"idempotency\0" + fingerprint, hashlib.sha256).digest()


async def _follow(connection: AsyncConnection, tenant: UUID, key: str, row: dict[str, Any]) -> Begun | Finished:
    """What holds for a key that is known, under a row lock."""
    columns = (
        idempotency_keys,
        (idempotency_keys.c.expires_at <= func.now()).label("over"),
        (idempotency_keys.c.started_at > func.now() - LEASE).label("under_way"),
    )
    query = select(*columns).where(idempotency_keys.c.tenant_id == tenant, idempotency_keys.c.key == key)
    found = (await connection.execute(query.with_for_update())).one_or_none()
    if found is None:
        # Swept away or abandoned in between: the next try begins it.
        raise IdempotencyBusy
    if found.over:
        await _restart(connection, tenant, key, row | {"status": None, "response": null()})
        return Begun(row["object_id"])
    return await _continue(connection, found, row)


async def _continue(connection: AsyncConnection, found: Row[Any], row: dict[str, Any]) -> Begun | Finished:
    if not hmac.compare_digest(found.fingerprint, row["fingerprint"]):
        raise IdempotencyConflict
    if found.status is not None:
        return Finished(found.status, found.response)
    if found.under_way:
        raise IdempotencyBusy
    await _restart(connection, found.tenant_id, found.key, {})
    return Begun(found.object_id)


async def _restart(connection: AsyncConnection, tenant: UUID, key: str, values: dict[str, Any]) -> None:
    statement = update(idempotency_keys).where(idempotency_keys.c.tenant_id == tenant, idempotency_keys.c.key == key)
    await connection.execute(statement.values(values | {"started_at": func.now()}))


def _unanswered(tenant: UUID, key: str) -> tuple[Any, ...]:
    named = idempotency_keys.c.tenant_id == tenant, idempotency_keys.c.key == key
    return *named, idempotency_keys.c.status.is_(None)
