"""Who waits for whom in the keyring: advisory locks of Postgres, held to the end of a transaction.

They end with the connection of whoever dies, and so none is left behind.
"""

from __future__ import annotations

import hashlib
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection


async def lock_tenant_keys(connection: AsyncConnection, tenant: UUID) -> None:
    """Alone make, retire or destroy a tenant's keys."""
    await connection.execute(select(func.pg_advisory_xact_lock(_number(f"tenant keys {tenant}"))))


async def hold_root_keys(connection: AsyncConnection) -> None:
    """Keep what is wrapped now, and will be stored with this transaction, from losing its root key before that."""
    await connection.execute(select(func.pg_advisory_xact_lock_shared(_number("root keys"))))


async def await_root_key_holders(connection: AsyncConnection) -> None:
    """Returns when whoever held the root keys has stored, where it can be seen, what it has wrapped."""
    await connection.execute(select(func.pg_advisory_xact_lock(_number("root keys"))))


async def claim_rotation(connection: AsyncConnection) -> bool:
    """Whether this transaction may rotate keys: one at a time may."""
    return bool((await connection.execute(select(func.pg_try_advisory_xact_lock(_number("rotation"))))).scalar())


def _number(purpose: str) -> int:
    digest = hashlib.sha256(f"timbrelay keyring {purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
