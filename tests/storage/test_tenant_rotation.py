"""storage.encryption.tenant_rotation, in a process that shares the database with others."""

from __future__ import annotations

import asyncio
import threading
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import select, update

from storage.database import Database
from storage.encryption import tenant_rotation
from storage.encryption.envelope import Label
from storage.encryption.keyring import Keyring, destroy_data_key
from storage.encryption.providers import WrappedKey
from storage.encryption.providers.local import LocalKeys, parse_keys
from storage.encryption.secrets import SecretBytes
from storage.encryption.tenant_rotation import count_data_keys, rotate_tenant
from storage.errors import DecryptionError, ServerUnavailable
from storage.settings import Settings
from storage.tables import data_keys
from tests.conftest import MakeTenant
from tests.storage.keyrings import CAUSE, list_actions, list_tenant_keys, load_keys, make_keys

Tried = asyncio.Event


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> Tried:
    """Is set when a rotation has tried to destroy the old tenant key."""
    tried, destroy = asyncio.Event(), tenant_rotation._destroy

    async def try_to_destroy(*given: Any) -> bool:
        try:
            return await destroy(*given)
        finally:
            tried.set()

    monkeypatch.setattr(tenant_rotation, "_destroy", try_to_destroy)
    return tried


@pytest.fixture
def rotating(settings: Settings) -> Keyring:
    """The keyring of the process that rotates; `keyring` is that of one that goes on serving."""
    return Keyring.from_settings(settings)


async def test_a_tenant_gets_a_new_key_and_nothing_else_changes(
    database: Database,
    keyring: Keyring,
    rotating: Keyring,
    make_tenant: MakeTenant,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Over several batches every data key stays what it was, the old tenant key is gone, and the log says so."""
    monkeypatch.setattr(tenant_rotation, "BATCH", 3)
    tenant, other = (await make_tenant("acme")).id, (await make_tenant("other")).id
    before = await make_keys(database, keyring, tenant, 10)
    others = await make_keys(database, keyring, other, 2)
    (old,) = await list_tenant_keys(database, tenant)
    (untouched,) = await list_tenant_keys(database, other)
    assert await count_data_keys(database, tenant) == 10
    assert await rotate_tenant(database, rotating, tenant, CAUSE) == 10
    (new,) = await list_tenant_keys(database, tenant)
    assert (new.state, new.id != old.id) == ("active", True)
    for process in (keyring, rotating, Keyring(rotating.provider)):
        assert await load_keys(database, process, tenant) == before
    assert await load_keys(database, keyring, other) == others
    assert await list_tenant_keys(database, other) == [untouched]
    assert await list_actions(database, tenant) == [
        ("keys.tenant_rotated", {"destroyed": str(old.id), "data_keys": 10})
    ]


async def test_a_tenant_without_keys_gets_none(database: Database, rotating: Keyring, make_tenant: MakeTenant) -> None:
    """A tenant that was deleted, or never had a voice, is left as it is."""
    tenant = (await make_tenant("acme")).id
    assert await rotate_tenant(database, rotating, tenant, CAUSE) == 0
    assert await list_tenant_keys(database, tenant) == []
    assert await list_actions(database, tenant) == []


async def test_what_the_old_key_wrapped_before_a_rotation_is_cut_off_with_it(
    database: Database, rotating: Keyring, make_tenant: MakeTenant
) -> None:
    """The rows from before do not open with what is left: neither data key nor tenant key were kept anywhere."""
    tenant = (await make_tenant("acme")).id
    await make_keys(database, rotating, tenant, 1)
    async with database.transaction(tenant=tenant) as connection:
        stolen = (await connection.execute(select(data_keys))).one()
    await rotate_tenant(database, rotating, tenant, CAUSE)
    async with database.transaction(tenant=tenant) as connection:
        await connection.execute(update(data_keys).values(wrapped_key=stolen.wrapped_key))
    with pytest.raises(DecryptionError):
        await load_keys(database, rotating, tenant)


async def test_a_data_key_that_is_being_stored_keeps_its_tenant_key(
    database: Database, keyring: Keyring, rotating: Keyring, make_tenant: MakeTenant, tried: Tried
) -> None:
    """A tenant's rotation ends only when a data key that was on its way under the old key has come over, too."""
    tenant = (await make_tenant("acme")).id
    before, late = await make_keys(database, keyring, tenant, 1), uuid4()
    async with database.transaction(tenant=tenant) as connection:
        before[late] = (await keyring.make_data_key(connection, tenant, late)).reveal()
        rotation = asyncio.create_task(rotate_tenant(database, rotating, tenant, CAUSE))
        await tried.wait()
        assert not rotation.done()
    assert await rotation == 2
    assert await load_keys(database, keyring, tenant) == before
    assert len(await list_tenant_keys(database, tenant)) == 1


class Slow(LocalKeys):
    """A provider that takes its time to unwrap."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(parse_keys(settings.root_key.get_secret_value(), "the test"))
        self.asked, self.go_on = threading.Event(), threading.Event()

    def unwrap(self, wrapped: WrappedKey, label: Label) -> SecretBytes:
        self.asked.set()
        assert self.go_on.wait(30)
        return super().unwrap(wrapped, label)


async def test_a_tenant_key_that_somebody_is_about_to_use_is_not_destroyed(
    settings: Settings, database: Database, keyring: Keyring, rotating: Keyring, make_tenant: MakeTenant, tried: Tried
) -> None:
    """Between the look for the active key and the data key under it a whole rotation may pass, but for its end."""
    tenant = (await make_tenant("acme")).id
    await make_keys(database, keyring, tenant, 1)
    slow = Slow(settings)
    making = asyncio.create_task(make_keys(database, Keyring(slow), tenant, 1))
    assert await asyncio.to_thread(slow.asked.wait, 30)
    rotation = asyncio.create_task(rotate_tenant(database, rotating, tenant, CAUSE))
    await tried.wait()
    slow.go_on.set()
    await making
    assert await rotation == 2
    assert len(await load_keys(database, rotating, tenant)) == 2


async def test_a_data_key_that_somebody_holds_is_waited_for_with_a_bound(
    database: Database, rotating: Keyring, make_tenant: MakeTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deletion is never waited for in its way: its row is passed over, and the rotation can be run again."""
    monkeypatch.setattr(tenant_rotation, "PATIENCE_S", 0.5)
    tenant = (await make_tenant("acme")).id
    owner, other = await make_keys(database, rotating, tenant, 2)
    async with database.transaction(tenant=tenant) as connection:
        await destroy_data_key(connection, owner)
        with pytest.raises(ServerUnavailable, match="run the rotation again"):
            await rotate_tenant(database, rotating, tenant, CAUSE)
    assert await rotate_tenant(database, rotating, tenant, CAUSE) == 0
    assert set(await load_keys(database, rotating, tenant)) == {other}
    assert len(await list_tenant_keys(database, tenant)) == 1


async def test_a_damaged_data_key_is_named_and_stays(
    database: Database, rotating: Keyring, make_tenant: MakeTenant
) -> None:
    """A rotation that meets one stops with whose it is, and destroys nothing."""
    tenant = (await make_tenant("acme")).id
    (owner,) = await make_keys(database, rotating, tenant, 1)
    async with database.transaction(tenant=tenant) as connection:
        await connection.execute(update(data_keys).values(wrapped_key=b"damaged"))
    with pytest.raises(DecryptionError, match=f"data-key of {owner}"):
        await rotate_tenant(database, rotating, tenant, CAUSE)
    assert {key.state for key in await list_tenant_keys(database, tenant)} == {"active", "retired"}
