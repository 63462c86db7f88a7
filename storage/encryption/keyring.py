"""The keyring: data keys by their owner, under tenant keys, under the provider's root key.

A tenant's key is unwrapped once and kept for a while, since a provider may be a service over the network and the way
to an embedding is short.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Row, delete, insert, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.encryption.envelope import Kind, Label, new_key, seal, unseal
from storage.encryption.locks import hold_root_keys, lock_tenant_keys
from storage.encryption.providers import KeyProvider, WrappedKey
from storage.encryption.providers.choice import open_provider
from storage.encryption.secrets import SecretBytes
from storage.errors import RootKeyError, ServerUnavailable
from storage.settings import Settings
from storage.tables import data_keys, tenant_keys

CACHE_TTL_S = 300.0
CACHE_CAPACITY = 1024
SILENCE_S = 1.0
"""How long a provider that did not answer is not asked again: whoever waits for it holds a connection to Postgres."""

_active = (tenant_keys.c.state == "active",)


class Keyring:
    """Hands out data keys within the caller's transaction, which is its tenant's.

    Its methods raise RootKeyError, ServerUnavailable and DecryptionError as the provider does.
    """

    def __init__(self, provider: KeyProvider, clock: Callable[[], float] = time.monotonic) -> None:
        self.provider = provider
        self._clock = clock
        self._kept: OrderedDict[UUID, tuple[float, SecretBytes]] = OrderedDict()
        self._asked: dict[UUID, asyncio.Future[SecretBytes]] = {}
        self._silent_until = 0.0
        self._silence: ServerUnavailable | None = None

    @classmethod
    def from_settings(cls, settings: Settings) -> Keyring:
        """The keyring over the configured provider; raises RootKeyError."""
        return cls(open_provider(settings))

    async def make_data_key(self, connection: AsyncConnection, tenant: UUID, owner: UUID) -> SecretBytes:
        """Make and keep the owner's data key, who must have none; returns it in the clear."""
        data_key = new_key()
        await connection.execute(insert(data_keys).values(**await self._wrap(connection, tenant, owner, data_key)))
        return data_key

    async def load_data_key(self, connection: AsyncConnection, tenant: UUID, owner: UUID) -> SecretBytes | None:
        """The owner's data key in the clear, or None when it was destroyed."""
        query = (
            select(data_keys.c.wrapped_key.label("wrapped_data_key"), tenant_keys)
            .join(tenant_keys, tenant_keys.c.id == data_keys.c.tenant_key_id)
            .where(data_keys.c.owner_id == owner)
        )
        row = (await connection.execute(query)).one_or_none()
        if row is None:
            return None
        tenant_key = await self.open_tenant_key(connection, row)
        return SecretBytes(unseal(tenant_key, row.wrapped_data_key, Label(tenant, owner, Kind.DATA_KEY)))

    async def load_or_make_data_key(self, connection: AsyncConnection, tenant: UUID, owner: UUID) -> SecretBytes:
        """The owner's data key, made by whoever asks first; the others are given the same."""
        found = await self.load_data_key(connection, tenant, owner)
        if found is not None:
            return found
        data_key = new_key()
        made = upsert(data_keys).values(**await self._wrap(connection, tenant, owner, data_key))
        first = made.on_conflict_do_nothing().returning(data_keys.c.owner_id)
        if (await connection.execute(first)).scalar() is not None:
            return data_key
        return await self.load_or_make_data_key(connection, tenant, owner)

    async def wrap(self, connection: AsyncConnection, key: SecretBytes, label: Label) -> WrappedKey:
        """A key under the root key, to be stored by this transaction: that root key is not destroyed before its end."""
        await hold_root_keys(connection)
        return await asyncio.to_thread(self.provider.wrap, key, label)

    async def make_tenant_key(self, connection: AsyncConnection, tenant: UUID) -> UUID:
        """A new active key for a tenant that has none, whose keys the caller has locked; returns its id."""
        key_id = uuid4()
        wrapped = await self.wrap(connection, new_key(), Label(tenant, key_id, Kind.TENANT_KEY))
        values = {"id": key_id, "tenant_id": tenant, "wrapped_key": wrapped.ciphertext}
        await connection.execute(insert(tenant_keys).values(**values, root_key_id=wrapped.root_key_id, state="active"))
        return key_id

    async def open_tenant_key(self, connection: AsyncConnection, row: Row[Any]) -> SecretBytes:
        """The key of a row of `tenant_keys` in the clear, also when it is wrapped anew at this moment."""
        try:
            return await self._unwrap(row)
        except RootKeyError:
            again = (await connection.execute(select(tenant_keys).where(tenant_keys.c.id == row.id))).one_or_none()
            if again is None or again.root_key_id == row.root_key_id:
                raise
            return await self._unwrap(again)

    def forget(self) -> None:
        """Drop every key that is kept in the clear."""
        self._kept.clear()

    async def _wrap(
        self, connection: AsyncConnection, tenant: UUID, owner: UUID, data_key: SecretBytes
    ) -> dict[str, object]:
        tenant_key_id, tenant_key = await self._current_tenant_key(connection, tenant)
        wrapped = seal(tenant_key, data_key.reveal(), Label(tenant, owner, Kind.DATA_KEY))
        return {"owner_id": owner, "tenant_id": tenant, "tenant_key_id": tenant_key_id, "wrapped_key": wrapped}

    async def _current_tenant_key(self, connection: AsyncConnection, tenant: UUID) -> tuple[UUID, SecretBytes]:
        query = select(tenant_keys).where(tenant_keys.c.tenant_id == tenant, *_active)
        # Held, so that a rotation does not take it away before what it wraps is stored.
        held = query.with_for_update(read=True, key_share=True)
        row = (await connection.execute(held)).one_or_none()
        if row is None:
            await lock_tenant_keys(connection, tenant)
            row = (await connection.execute(held)).one_or_none()
        if row is None:
            await self.make_tenant_key(connection, tenant)
            row = (await connection.execute(query)).one()
        return row.id, await self.open_tenant_key(connection, row)

    async def _unwrap(self, row: Row[Any]) -> SecretBytes:
        kept = self._kept.get(row.id)
        if kept is not None and kept[0] > self._clock():
            self._kept.move_to_end(row.id)
            return kept[1]
        return await self._ask_once(row)

    async def _ask_once(self, row: Row[Any]) -> SecretBytes:
        """However many wait for a key, its provider is asked once; all of them are given the answer."""
        asked = self._asked.get(row.id)
        if asked is None or asked.get_loop() is not asyncio.get_running_loop():
            asked = asyncio.ensure_future(self._ask(row))
            self._asked[row.id] = asked
            asked.add_done_callback(lambda _: self._asked.pop(row.id, None))
        return await asyncio.shield(asked)

    async def _ask(self, row: Row[Any]) -> SecretBytes:
        if self._silence is not None and self._clock() < self._silent_until:
            raise ServerUnavailable(self._silence.server, self._silence.reason)
        label = Label(row.tenant_id, row.id, Kind.TENANT_KEY)
        try:
            key = await asyncio.to_thread(self.provider.unwrap, WrappedKey(row.root_key_id, row.wrapped_key), label)
        except ServerUnavailable as error:
            self._silence, self._silent_until = error, self._clock() + SILENCE_S
            raise
        self._kept[row.id] = (self._clock() + CACHE_TTL_S, key)
        while len(self._kept) > CACHE_CAPACITY:
            self._kept.popitem(last=False)
        return key


async def destroy_data_key(connection: AsyncConnection, owner: UUID) -> bool:
    """Destroy the owner's data key: what it sealed can never be read again. False when there was none."""
    return bool((await connection.execute(delete(data_keys).where(data_keys.c.owner_id == owner))).rowcount)


async def destroy_tenant_keys(connection: AsyncConnection, tenant: UUID) -> int:
    """Destroy a tenant's keys, and with them every data key that they wrapped; returns how many tenant keys."""
    await lock_tenant_keys(connection, tenant)
    return (await connection.execute(delete(tenant_keys).where(tenant_keys.c.tenant_id == tenant))).rowcount
