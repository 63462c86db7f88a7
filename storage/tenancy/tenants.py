"""Tenants and their API keys; of a key only its SHA-256 is kept.

A key has 256 random bits, so a plain hash is as good as a slow one: there is nothing to guess (OWASP, "Password Storage
Cheat Sheet", is about secrets that people choose).
"""

from __future__ import annotations

import hashlib
import secrets
from uuid import UUID, uuid4

from sqlalchemy import func, insert, select, update

from storage.database import Database
from storage.tables import api_keys, tenants

KEY_PREFIX = "tr_"
_KEY_TEXT_LIMIT = 128


def hash_key(key: str) -> bytes:
    """The 32 bytes under which a key is kept."""
    return hashlib.sha256(key.encode()).digest()


async def find_tenant(database: Database, key: str) -> UUID | None:
    """The tenant whose key this is; None for an unknown, revoked or malformed key."""
    if not key.startswith(KEY_PREFIX) or len(key) > _KEY_TEXT_LIMIT:
        return None
    hashed = hash_key(key)
    query = select(api_keys.c.tenant_id).where(api_keys.c.key_hash == hashed, api_keys.c.revoked_at.is_(None))
    async with database.transaction(key_hash=hashed) as connection:
        return (await connection.execute(query)).scalar()


async def ensure_tenant(owner: Database, name: str) -> UUID:
    """The id of the tenant with this name, made if there is none; for operators."""
    async with owner.transaction() as connection:
        found: UUID | None = (await connection.execute(select(tenants.c.id).where(tenants.c.name == name))).scalar()
        if found is None:
            found = uuid4()
            await connection.execute(insert(tenants).values(id=found, name=name))
        return found


async def create_key(owner: Database, tenant: UUID) -> tuple[UUID, str]:
    """Make a key for a tenant; returns its id and its text, which is shown this once."""
    key_id, key = uuid4(), KEY_PREFIX + secrets.token_urlsafe(32)
    async with owner.transaction() as connection:
        await connection.execute(insert(api_keys).values(id=key_id, tenant_id=tenant, key_hash=hash_key(key)))
    return key_id, key


async def revoke_key(owner: Database, key_id: UUID) -> bool:
    """Revoke a key; False when there is none with this id that still works."""
    statement = (
        update(api_keys).where(api_keys.c.id == key_id, api_keys.c.revoked_at.is_(None)).values(revoked_at=func.now())
    )
    async with owner.transaction() as connection:
        return (await connection.execute(statement)).rowcount == 1
