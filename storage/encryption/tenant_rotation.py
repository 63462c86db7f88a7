"""A new key for a tenant: every data key is wrapped anew under it, then the old one is destroyed.

Each step is a transaction of its own, and what is left to do can be seen in the tables: a retired key, and the data
keys that still refer to it. So it goes on wherever it was killed. A data key is only ever updated, under its row lock,
and never inserted: one that is destroyed meanwhile stays destroyed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import bindparam, delete, exists, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.database import Database
from storage.encryption.envelope import Kind, Label, seal, unseal
from storage.encryption.keyring import Keyring
from storage.encryption.locks import lock_tenant_keys
from storage.encryption.secrets import SecretBytes
from storage.errors import DecryptionError, ServerUnavailable
from storage.evidence.audit import Act, append
from storage.tables import data_keys, tenant_keys

BATCH = 200
PATIENCE_S = 30.0
"""How long keys that other transactions hold are waited for."""

_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Cause:
    """Who rotates, as the audit log names it."""

    actor: str
    origin: str


async def rotate_tenant(database: Database, keyring: Keyring, tenant: UUID, cause: Cause) -> int:
    """Give the tenant a new key in place of its present one, or end such a rotation that was interrupted.

    Returns how many data keys were wrapped anew. A tenant without a key, or one that loses it meanwhile because it is
    deleted, is left as it is. Raises ServerUnavailable when data keys are held by others for longer than PATIENCE_S,
    and what the keyring raises; to be called again then.
    """
    retired = await _retire(database, keyring, tenant)
    moved = 0
    for _ in range(round(PATIENCE_S / _PAUSE_S)):
        for old in list(retired):
            while count := await _move_batch(database, keyring, tenant, old):
                moved += count
            if await _destroy(database, tenant, old, moved, cause):
                retired.remove(old)
        if not retired:
            return moved
        await asyncio.sleep(_PAUSE_S)
    raise ServerUnavailable("Postgres", f"data keys of tenant {tenant} are in use; run the rotation again")


async def count_data_keys(database: Database, tenant: UUID) -> int:
    """How many data keys a rotation of the tenant's key wraps anew."""
    query = select(func.count()).select_from(data_keys).where(data_keys.c.tenant_id == tenant)
    async with database.transaction(tenant=tenant) as connection:
        return (await connection.execute(query)).scalar_one()


async def _retire(database: Database, keyring: Keyring, tenant: UUID) -> list[UUID]:
    """The retired keys; when there are none yet, after the active one has become one and a new one is active."""
    retired = select(tenant_keys.c.id).where(tenant_keys.c.tenant_id == tenant, tenant_keys.c.state == "retired")
    active = tenant_keys.c.tenant_id == tenant, tenant_keys.c.state == "active"
    async with database.transaction(tenant=tenant) as connection:
        await lock_tenant_keys(connection, tenant)
        if found := (await connection.execute(retired)).scalars().all():
            return list(found)
        changed = update(tenant_keys).where(*active).values(state="retired").returning(tenant_keys.c.id)
        if found := (await connection.execute(changed)).scalars().all():
            await keyring.make_tenant_key(connection, tenant)
        return list(found)


async def _move_batch(database: Database, keyring: Keyring, tenant: UUID, old: UUID) -> int:
    """Wrap up to BATCH data keys anew, of those that nobody else holds; returns how many."""
    query = (
        select(data_keys.c.owner_id, data_keys.c.wrapped_key)
        .where(data_keys.c.tenant_id == tenant, data_keys.c.tenant_key_id == old)
        .limit(BATCH)
        .with_for_update(skip_locked=True)
    )
    async with database.transaction(tenant=tenant) as connection:
        await lock_tenant_keys(connection, tenant)
        keys = await _open_keys(connection, keyring, tenant, old)
        rows = (await connection.execute(query)).all() if keys else []
        if keys is None or not rows:
            return 0
        changed = (
            update(data_keys)
            .where(data_keys.c.owner_id == bindparam("owner"))
            .values(wrapped_key=bindparam("wrapped"), tenant_key_id=keys.new_id)
        )
        wrapped = [{"owner": row.owner_id, "wrapped": keys.move(row.wrapped_key, row.owner_id)} for row in rows]
        await connection.execute(changed, wrapped)
        return len(rows)


@dataclass(frozen=True, slots=True)
class _Keys:
    tenant: UUID
    old: SecretBytes
    new_id: UUID
    new: SecretBytes

    def move(self, wrapped: bytes, owner: UUID) -> bytes:
        label = Label(self.tenant, owner, Kind.DATA_KEY)
        try:
            return seal(self.new, unseal(self.old, wrapped, label), label)
        except DecryptionError as error:
            raise DecryptionError(f"{label.kind} of {owner}") from error


async def _open_keys(connection: AsyncConnection, keyring: Keyring, tenant: UUID, old: UUID) -> _Keys | None:
    """None when the tenant has lost its keys."""
    rows = (await connection.execute(select(tenant_keys).where(tenant_keys.c.tenant_id == tenant))).all()
    before = next((row for row in rows if row.id == old), None)
    active = next((row for row in rows if row.state == "active"), None)
    if before is None or active is None:
        return None
    opened = [await keyring.open_tenant_key(connection, row) for row in (before, active)]
    return _Keys(tenant, opened[0], active.id, opened[1])


async def _destroy(database: Database, tenant: UUID, old: UUID, moved: int, cause: Cause) -> bool:
    """Destroy a retired key that nothing refers to, and put the rotation on record; True when it is gone."""
    its = tenant_keys.c.id == old
    async with database.transaction(tenant=tenant) as connection:
        await lock_tenant_keys(connection, tenant)
        if (await connection.execute(select(tenant_keys.c.id).where(its))).scalar() is None:
            return True
        # Whoever is about to store a data key under it holds it; who has stored one is seen by the next statement.
        free = select(tenant_keys.c.id).where(its).with_for_update(skip_locked=True)
        if (await connection.execute(free)).scalar() is None:
            return False
        in_use = select(exists().where(data_keys.c.tenant_id == tenant, data_keys.c.tenant_key_id == old))
        if (await connection.execute(in_use)).scalar():
            return False
        await connection.execute(delete(tenant_keys).where(its))
        detail: dict[str, str | int] = {"destroyed": str(old), "data_keys": moved}
        act = Act(cause.actor, "keys.tenant_rotated", "tenant", str(tenant), cause.origin, detail)
        await append(connection, tenant, act)
        return True
