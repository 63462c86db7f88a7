"""What the tests of rotations share: keys made and found, a rotation as the command line does it."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import select, text

from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.encryption.rotation import destroy_old_root_keys, read_root_keys, rotate_root
from storage.encryption.tenant_rotation import Cause
from storage.evidence.audit import read_audit
from storage.tables import data_keys, tenant_keys

CAUSE = Cause("operator:cli", "cli")


def quietly(_done: int, _total: int) -> None:
    """No progress."""


async def make_keys(database: Database, keyring: Keyring, tenant: UUID, count: int) -> dict[UUID, bytes]:
    made = {}
    async with database.transaction(tenant=tenant) as connection:
        for _ in range(count):
            owner = uuid4()
            made[owner] = (await keyring.make_data_key(connection, tenant, owner)).reveal()
    return made


async def load_keys(database: Database, keyring: Keyring, tenant: UUID) -> dict[UUID, bytes]:
    async with database.transaction(tenant=tenant) as connection:
        owners = (await connection.execute(select(data_keys.c.owner_id))).scalars().all()
        loaded = {owner: await keyring.load_data_key(connection, tenant, owner) for owner in owners}
    return {owner: key.reveal() for owner, key in loaded.items() if key is not None}


async def list_tenant_keys(database: Database, tenant: UUID) -> list[Any]:
    async with database.transaction(tenant=tenant) as connection:
        return list((await connection.execute(select(tenant_keys))).all())


async def list_actions(database: Database, tenant: UUID) -> list[tuple[str, Any]]:
    async with database.transaction(tenant=tenant) as connection:
        return [(entry.action, entry.detail) for entry in await read_audit(connection, tenant, limit=100)]


async def rotate_root_key(
    database: Database, keyring: Keyring, *, destroy_old: bool = False, anew: bool = False
) -> str:
    found = await read_root_keys(database, keyring.provider, quietly)
    current = await rotate_root(database, keyring, found, CAUSE, quietly, anew=anew)
    if destroy_old:
        await destroy_old_root_keys(database, keyring.provider, found, CAUSE)
    return current


async def until_somebody_waits(database: Database) -> None:
    """Until a transaction of this database waits for a lock."""
    waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    for _attempt in range(3000):
        async with database.transaction() as connection:
            if (await connection.execute(waiting)).scalar():
                return
        await asyncio.sleep(0.01)
    raise AssertionError("nobody waits")
