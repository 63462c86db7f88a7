"""The keyring: data keys by their owner, under tenant keys, under the provider's root key.

A tenant's key is unwrapped once and kept for a while, since a provider may be a service over the network and the way
to an embedding is short.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from uuid import UUID, uuid4

from sqlalchemy import Row, delete, insert, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.encryption.envelope import Kind, Label, new_key, seal, unseal
from storage.encryption.providers import KeyProvider, WrappedKey
from storage.encryption.providers.choice import open_provider
from storage.encryption.secrets import SecretBytes
from storage.settings import Settings
from storage.tables import data_keys, tenant_keys

CACHE_TTL_S = 300.0
CACHE_CAPACITY = 1024

_active = (tenant_keys.c.state == "active",)


class Keyring:
    """Hands out data keys within the caller's transaction, which is its tenant's."""

    def __init__(self, provider: KeyProvider, clock: Callable[[], float] = time.monotonic) -> None:
        self.provider = provider
        self._clock = clock
        self._kept: OrderedDict[UUID, tuple[float, SecretBytes]] = OrderedDict()

    @classmethod
    def from_settings(cls, settings: Settings) -> Keyring:
        """The keyring over the configured provider; raises RootKeyError."""
        return cls(open_provider(settings))

    async def make_data_key(self, connection: AsyncConnection, tenant: UUID, owner: UUID) -> SecretBytes:
        """Make and keep the owner's data key; returns it in the clear."""
        tenant_key_id, tenant_key = await self._current_tenant_key(connection, tenant)
        data_key = new_key()
        wrapped = seal(tenant_key, data_key.reveal(), Label(tenant, owner, Kind.DATA_KEY))
        await connection.execute(
            insert(data_keys).values(owner_id=owner, tenant_id=tenant, tenant_key_id=tenant_key_id, wrapped_key=wrapped)
        )
        return data_key

    async def load_data_key(self, connection: AsyncConnection, tenant: UUID, owner: UUID) -> SecretBytes | None:
        """The owner's data key in the clear, or None when it was destroyed; raises DecryptionError."""
        query = (
            select(data_keys.c.wrapped_key.label("wrapped_data_key"), tenant_keys)
            .join(tenant_keys, tenant_keys.c.id == data_keys.c.tenant_key_id)
            .where(data_keys.c.owner_id == owner)
        )
        row = (await connection.execute(query)).one_or_none()
        if row is None:
            return None
        tenant_key = await self._unwrap(row)
        return SecretBytes(unseal(tenant_key, row.wrapped_data_key, Label(tenant, owner, Kind.DATA_KEY)))

    async def load_or_make_data_key(self, connection: AsyncConnection, tenant: UUID, owner: UUID) -> SecretBytes:
        """The owner's data key, made by whoever asks first."""
        found = await self.load_data_key(connection, tenant, owner)
        return found if found is not None else await self.make_data_key(connection, tenant, owner)

    def forget(self) -> None:
        """Drop every key that is kept in the clear."""
        self._kept.clear()

    async def _current_tenant_key(self, connection: AsyncConnection, tenant: UUID) -> tuple[UUID, SecretBytes]:
        query = select(tenant_keys).where(tenant_keys.c.tenant_id == tenant, *_active)
        row = (await connection.execute(query)).one_or_none()
        if row is None:
            await self._make_tenant_key(connection, tenant)
            row = (await connection.execute(query)).one()
        return row.id, await self._unwrap(row)

    async def _make_tenant_key(self, connection: AsyncConnection, tenant: UUID) -> None:
        """Of two that make a tenant's first key at once, the second takes what the first has made."""
        key_id = uuid4()
        label = Label(tenant, key_id, Kind.TENANT_KEY)
        wrapped = await asyncio.to_thread(self.provider.wrap, new_key(), label)
        values = {"id": key_id, "tenant_id": tenant, "wrapped_key": wrapped.ciphertext}
        statement = upsert(tenant_keys).values(**values, root_key_id=wrapped.root_key_id, state="active")
        await connection.execute(statement.on_conflict_do_nothing())

    async def _unwrap(self, row: Row[tuple[object, ...]]) -> SecretBytes:
        kept = self._kept.get(row.id)
        if kept is not None and kept[0] > self._clock():
            self._kept.move_to_end(row.id)
            return kept[1]
        label = Label(row.tenant_id, row.id, Kind.TENANT_KEY)
        key = await asyncio.to_thread(self.provider.unwrap, WrappedKey(row.root_key_id, row.wrapped_key), label)
        self._kept[row.id] = (self._clock() + CACHE_TTL_S, key)
        while len(self._kept) > CACHE_CAPACITY:
            self._kept.popitem(last=False)
        return key


async def destroy_data_key(connection: AsyncConnection, owner: UUID) -> bool:
    """Destroy the owner's data key: what it sealed can never be read again. False when there was none."""
    return bool((await connection.execute(delete(data_keys).where(data_keys.c.owner_id == owner))).rowcount)


async def destroy_tenant_keys(connection: AsyncConnection, tenant: UUID) -> int:
    """Destroy a tenant's keys, and with them every data key that they wrapped; returns how many tenant keys."""
    return (await connection.execute(delete(tenant_keys).where(tenant_keys.c.tenant_id == tenant))).rowcount
