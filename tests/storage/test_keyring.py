"""storage.encryption.keyring: data keys under tenant keys under a root key, kept in memory for a while."""

from __future__ import annotations

import asyncio
import threading
from uuid import UUID, uuid4

import pytest
from sqlalchemy import func, select, update

from storage.database import Database
from storage.encryption.envelope import Kind, Label, new_key
from storage.encryption.keyring import CACHE_CAPACITY, Keyring, destroy_data_key, destroy_tenant_keys
from storage.encryption.providers import WrappedKey
from storage.encryption.providers.local import LocalKeys
from storage.encryption.secrets import SecretBytes
from storage.errors import DecryptionError, RootKeyError, ServerUnavailable
from storage.tables import data_keys, tenant_keys
from tests.conftest import MakeTenant


class Provider(LocalKeys):
    """A local one that counts, and that can be silent or slow."""

    def __init__(self) -> None:
        super().__init__([new_key()])
        self.unwrapped = 0
        self.silent = False
        self.asked = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    def unwrap(self, wrapped: WrappedKey, label: Label) -> SecretBytes:
        self.unwrapped += 1
        self.asked.set()
        assert self.go_on.wait(30)
        if self.silent:
            raise ServerUnavailable("the provider", "stopped")
        return super().unwrap(wrapped, label)


class Clock:
    """Seconds, as a test sets them."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def tenant(make_tenant: MakeTenant) -> UUID:
    """The tenant that most tests need."""
    return (await make_tenant("acme")).id


@pytest.fixture
def provider() -> Provider:
    """A provider that answers."""
    return Provider()


@pytest.fixture
def clock() -> Clock:
    """A clock that stands."""
    return Clock()


@pytest.fixture
def keys(provider: Provider, clock: Clock) -> Keyring:
    """A keyring over both."""
    return Keyring(provider, clock)


async def _make(database: Database, keyring: Keyring, tenant: UUID) -> UUID:
    owner = uuid4()
    async with database.transaction(tenant=tenant) as connection:
        await keyring.make_data_key(connection, tenant, owner)
    return owner


async def _load(database: Database, keyring: Keyring, tenant: UUID, owner: UUID) -> SecretBytes | None:
    async with database.transaction(tenant=tenant) as connection:
        return await keyring.load_data_key(connection, tenant, owner)


async def test_a_data_key_is_found_again(database: Database, keys: Keyring, provider: Provider, tenant: UUID) -> None:
    """By another process that has the same root key, too; each owner's is another."""
    owner, other = [await _make(database, keys, tenant) for _ in range(2)]
    found = await _load(database, keys, tenant, owner)
    assert found is not None
    assert found == await _load(database, Keyring(provider), tenant, owner)
    assert found != await _load(database, keys, tenant, other)
    with pytest.raises(RootKeyError):
        await _load(database, Keyring(LocalKeys([new_key()])), tenant, owner)


async def test_a_tenant_has_one_key_whoever_comes_first(database: Database, keys: Keyring, tenant: UUID) -> None:
    """Four transactions at once that need a tenant's first key all wrap under the same one."""
    await asyncio.gather(*(_make(database, keys, tenant) for _ in range(4)))
    async with database.transaction(tenant=tenant) as connection:
        assert (await connection.execute(select(func.count()).select_from(tenant_keys))).scalar() == 1
        assert (await connection.execute(select(func.count()).select_from(data_keys))).scalar() == 4


async def test_who_loads_or_makes_is_given_the_same_key(database: Database, keys: Keyring, tenant: UUID) -> None:
    """Four at once that want the key of one owner get one key, and nobody fails."""
    owner = uuid4()

    async def load_or_make() -> SecretBytes:
        async with database.transaction(tenant=tenant) as connection:
            return await keys.load_or_make_data_key(connection, tenant, owner)

    found = await asyncio.gather(*(load_or_make() for _ in range(4)))
    assert all(key == found[0] for key in found)
    assert found[0] == await _load(database, keys, tenant, owner)


async def test_a_destroyed_data_key_is_gone(database: Database, keys: Keyring, tenant: UUID) -> None:
    """Nothing that is kept in memory brings it back, and a second destruction finds nothing."""
    owner, other = [await _make(database, keys, tenant) for _ in range(2)]
    async with database.transaction(tenant=tenant) as connection:
        assert await destroy_data_key(connection, owner)
        assert not await destroy_data_key(connection, owner)
    assert await _load(database, keys, tenant, owner) is None
    assert await _load(database, keys, tenant, other) is not None


async def test_destroying_a_tenants_keys_destroys_its_data_keys(
    database: Database, keys: Keyring, tenant: UUID, make_tenant: MakeTenant
) -> None:
    """All of them, and no other tenant's."""
    stranger = (await make_tenant("other")).id
    owner, others = await _make(database, keys, tenant), await _make(database, keys, stranger)
    async with database.transaction(tenant=tenant) as connection:
        assert await destroy_tenant_keys(connection, stranger) == 0
        assert await destroy_tenant_keys(connection, tenant) == 1
        assert (await connection.execute(select(func.count()).select_from(data_keys))).scalar() == 0
    assert await _load(database, keys, tenant, owner) is None
    assert await _load(database, keys, stranger, others) is not None


async def test_another_tenants_key_is_not_there(
    database: Database, keys: Keyring, tenant: UUID, make_tenant: MakeTenant
) -> None:
    """Whoever asks in another tenant's transaction finds nothing."""
    stranger = (await make_tenant("other")).id
    assert await _load(database, keys, stranger, await _make(database, keys, tenant)) is None


async def test_a_wrapped_key_that_was_moved_does_not_open(database: Database, keys: Keyring, tenant: UUID) -> None:
    """A data key put into another owner's row is refused."""
    owner, other = [await _make(database, keys, tenant) for _ in range(2)]
    async with database.transaction(tenant=tenant) as connection:
        moved = select(data_keys.c.wrapped_key).where(data_keys.c.owner_id == owner).scalar_subquery()
        await connection.execute(update(data_keys).where(data_keys.c.owner_id == other).values(wrapped_key=moved))
    with pytest.raises(DecryptionError, match="data-key"):
        await _load(database, keys, tenant, other)


async def test_a_tenant_key_is_kept_for_five_minutes(
    database: Database, keys: Keyring, provider: Provider, clock: Clock, tenant: UUID
) -> None:
    """The provider is asked once in that time, and again when it is over or everything was forgotten."""
    owner = await _make(database, keys, tenant)
    clock.now += 299
    await _load(database, keys, tenant, owner)
    assert provider.unwrapped == 1
    clock.now += 2
    await _load(database, keys, tenant, owner)
    assert provider.unwrapped == 2
    keys.forget()
    await _load(database, keys, tenant, owner)
    assert provider.unwrapped == 3


async def test_the_keys_that_are_kept_are_bounded(database: Database, keys: Keyring, tenant: UUID) -> None:
    """However many tenants there are, the oldest keys make room."""
    await _make(database, keys, tenant)
    ((first, kept),) = keys._kept.items()
    for _ in range(CACHE_CAPACITY):
        keys._kept[uuid4()] = kept
    async with database.transaction(tenant=tenant) as connection:
        await connection.execute(tenant_keys.delete())
    await _make(database, keys, tenant)
    assert len(keys._kept) == CACHE_CAPACITY
    assert first not in keys._kept


async def test_many_who_wait_ask_the_provider_once(
    database: Database, keys: Keyring, provider: Provider, tenant: UUID
) -> None:
    """A tenant's crowd after a restart is one call; one of them who gives up does not take the answer from the rest."""
    owner = await _make(database, keys, tenant)
    keys.forget()
    provider.unwrapped = 0
    provider.asked.clear()
    provider.go_on.clear()
    waiting = [asyncio.create_task(_load(database, keys, tenant, owner)) for _ in range(4)]
    assert await asyncio.to_thread(provider.asked.wait, 30)
    waiting[0].cancel()
    await asyncio.gather(waiting[0], return_exceptions=True)
    provider.go_on.set()
    found = await asyncio.gather(*waiting[1:])
    assert provider.unwrapped == 1
    assert all(key is not None for key in found)


async def test_an_outage_of_the_provider_stops_only_who_needs_it(
    database: Database, keys: Keyring, provider: Provider, clock: Clock, tenant: UUID, make_tenant: MakeTenant
) -> None:
    """Tenants whose key is kept go on; others get a retryable error, without a call each, and work after the outage."""
    stranger = (await make_tenant("other")).id
    owner, others = await _make(database, keys, tenant), await _make(database, Keyring(provider), stranger)
    provider.silent, provider.unwrapped = True, 0
    for _ in range(3):
        assert await _load(database, keys, tenant, owner) is not None
        with pytest.raises(ServerUnavailable) as caught:
            await _load(database, keys, stranger, others)
        assert caught.value.retryable
    assert provider.unwrapped == 1
    provider.silent = False
    clock.now += 2
    assert await _load(database, keys, stranger, others) is not None


async def test_a_key_that_is_wrapped_anew_at_this_moment_opens(
    database: Database, keys: Keyring, provider: Provider, tenant: UUID
) -> None:
    """Whoever read a tenant key's row before a root rotation, and opens it after the old root key is gone, succeeds."""
    await _make(database, keys, tenant)
    successor = LocalKeys([new_key()])
    async with database.transaction(tenant=tenant) as connection:
        before = (await connection.execute(select(tenant_keys))).one()
        label = Label(tenant, before.id, Kind.TENANT_KEY)
        wrapped = successor.wrap(provider.unwrap(WrappedKey(before.root_key_id, before.wrapped_key), label), label)
        values = {"wrapped_key": wrapped.ciphertext, "root_key_id": wrapped.root_key_id}
        await connection.execute(update(tenant_keys).values(values))
        opened = await Keyring(successor).open_tenant_key(connection, before)
        assert opened == await keys.open_tenant_key(connection, before)
