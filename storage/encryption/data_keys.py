"""The data keys of voices and consents: one an owner, wrapped by the root key, destroyed with the owner."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.encryption.envelope import Kind, Label
from storage.encryption.keyring import RootKey
from storage.tables import data_keys


async def make_data_key(connection: AsyncConnection, root: RootKey, tenant: UUID, owner: UUID) -> bytes:
    """Make and keep the owner's data key; returns it in the clear."""
    data_key, wrapped = root.wrap_new(Label(tenant, owner, Kind.DATA_KEY))
    await connection.execute(
        insert(data_keys).values(owner_id=owner, tenant_id=tenant, wrapped_key=wrapped, root_key_id=root.id)
    )
    return data_key


async def load_data_key(connection: AsyncConnection, root: RootKey, tenant: UUID, owner: UUID) -> bytes | None:
    """The owner's data key in the clear, or None when it was destroyed; raises DecryptionError."""
    query = select(data_keys.c.wrapped_key).where(data_keys.c.owner_id == owner)
    wrapped: bytes | None = (await connection.execute(query)).scalar()
    return None if wrapped is None else root.unwrap(wrapped, Label(tenant, owner, Kind.DATA_KEY))


async def destroy_data_key(connection: AsyncConnection, owner: UUID) -> None:
    """Destroy the owner's data key: what it sealed can never be read again."""
    await connection.execute(delete(data_keys).where(data_keys.c.owner_id == owner))
