"""storage.encryption.rotation, in a process that shares the database and the root key file with others."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql
from pydantic import SecretStr
from sqlalchemy import make_url, update

from storage.database import Database
from storage.encryption import tenant_rotation
from storage.encryption.envelope import new_key
from storage.encryption.keyring import Keyring, destroy_data_key, destroy_tenant_keys
from storage.encryption.providers import KeyProvider
from storage.encryption.rotation import (
    destroy_old_root_keys,
    exclusive_rotation,
    list_tenants,
    read_root_keys,
)
from storage.encryption.tenant_rotation import rotate_tenant
from storage.errors import DecryptionError, RootKeyError, ServerUnavailable
from storage.evidence.audit import PLATFORM
from storage.evidence.signing import load_signer
from storage.private_files import write_private
from storage.settings import Settings
from storage.tables import tenant_keys
from storage.voices.versions import load_embedding
from tests.conftest import MakeTenant, MakeVoice
from tests.storage.keyrings import (
    CAUSE,
    list_actions,
    list_tenant_keys,
    load_keys,
    make_keys,
    quietly,
    rotate_root_key,
    until_somebody_waits,
)


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    """As usual, but the root key lies in a file."""
    file = tmp_path / "root.key"
    write_private(file, settings.root_key.get_secret_value() + "\n")
    return settings.model_copy(update={"root_key": SecretStr(""), "root_key_file": file})


@pytest.fixture
def rotating(settings: Settings) -> Keyring:
    """The keyring of the process that rotates; `keyring` is that of one that goes on serving."""
    return Keyring.from_settings(settings)


@pytest.fixture
async def database(settings: Settings) -> AsyncIterator[Database]:
    """With connections for both."""
    opened = Database.for_service(settings, pool_size=10)
    yield opened
    await opened.close()


async def test_everything_comes_under_a_new_root_key(
    database: Database, keyring: Keyring, rotating: Keyring, make_tenant: MakeTenant
) -> None:
    """Tenants' keys, the service's own and its signing key; a process that runs goes on without a restart."""
    tenants = [(await make_tenant(name)).id for name in ("acme", "other")]
    before = {tenant: await make_keys(database, keyring, tenant, 3) for tenant in (*tenants, PLATFORM)}
    async with database.transaction(tenant=PLATFORM) as connection:
        signing = (await load_signer(connection, keyring)).key_id
    old = rotating.provider.root_key_id
    found = await read_root_keys(database, rotating.provider, quietly)
    assert (found.current, dict(found.tenant_keys), dict(found.signing_keys)) == (old, {old: 3}, {old: 1})
    assert found.outdated == 0
    new = await rotate_root_key(database, rotating, destroy_old=True)
    assert new != old
    assert rotating.provider.known_root_keys() == keyring.provider.known_root_keys() == [new]
    found = await read_root_keys(database, rotating.provider, quietly)
    assert (found.current, dict(found.tenant_keys), dict(found.signing_keys)) == (new, {new: 3}, {new: 1})
    for process in (keyring, rotating, Keyring(rotating.provider)):
        for tenant, keys in before.items():
            assert await load_keys(database, process, tenant) == keys
        async with database.transaction(tenant=PLATFORM) as connection:
            assert (await load_signer(connection, process)).key_id == signing
    replaced, destroyed = await list_actions(database, PLATFORM)
    detail = {"root_key": new, "replaced": [old], "tenant_keys": 3, "signing_keys": 1, "failed": 0}
    assert replaced == ("keys.root_rotated", detail)
    assert destroyed == ("keys.root_rotated", {"root_key": new, "destroying": [old]})


async def test_a_root_rotation_that_was_interrupted_makes_no_further_root_key(
    database: Database, keyring: Keyring, rotating: Keyring, make_tenant: MakeTenant
) -> None:
    """As long as something is under an older root key, a rotation brings it under the one that is current."""
    tenant = (await make_tenant("acme")).id
    await make_keys(database, keyring, tenant, 1)
    made = rotating.provider.make_root_key()
    assert await rotate_root_key(database, rotating) == made
    assert len(rotating.provider.known_root_keys()) == 2
    assert await rotate_root_key(database, rotating) != made


async def test_a_root_key_that_wraps_anything_is_not_destroyed(
    database: Database, keyring: Keyring, rotating: Keyring, make_tenant: MakeTenant
) -> None:
    """Older ones go only when nothing refers to them."""
    await make_keys(database, keyring, (await make_tenant("acme")).id, 1)
    old = rotating.provider.root_key_id
    unused, current = rotating.provider.make_root_key(), rotating.provider.make_root_key()
    found = await read_root_keys(database, rotating.provider, quietly)
    assert await destroy_old_root_keys(database, rotating.provider, found, CAUSE) == [unused]
    assert rotating.provider.known_root_keys() == [current, old]


async def test_a_key_that_is_being_stored_keeps_its_root_key(
    database: Database, keyring: Keyring, rotating: Keyring, make_tenant: MakeTenant
) -> None:
    """A rotation waits for a transaction that has wrapped under the old root key and not committed yet."""
    tenant = (await make_tenant("acme")).id
    async with database.transaction(tenant=tenant) as connection:
        await keyring.make_data_key(connection, tenant, uuid4())
        rotation = asyncio.create_task(rotate_root_key(database, rotating, destroy_old=True))
        await until_somebody_waits(database)
        assert not rotation.done()
    new = await rotation
    assert [key.root_key_id for key in await list_tenant_keys(database, tenant)] == [new]
    assert len(await load_keys(database, keyring, tenant)) == 1


async def test_what_is_destroyed_during_rotations_stays_destroyed(
    database: Database, keyring: Keyring, rotating: Keyring, make_tenant: MakeTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Voices and whole tenants go, and new voices come, while keys are rotated: the gone are gone, the rest opens."""
    monkeypatch.setattr(tenant_rotation, "BATCH", 2)
    chance = random.Random(5)
    tenants = [(await make_tenant(f"tenant {number}")).id for number in range(4)]
    kept = {tenant: await make_keys(database, keyring, tenant, 12) for tenant in tenants}
    gone: set[UUID] = set()

    async def rotate() -> None:
        for _ in range(2):
            await rotate_root_key(database, rotating, destroy_old=True)
            for tenant in await list_tenants(database):
                await rotate_tenant(database, rotating, tenant, CAUSE)

    async def live(tenant: UUID) -> None:
        for owner in chance.sample(sorted(kept[tenant]), 6):
            async with database.transaction(tenant=tenant) as connection:
                assert await destroy_data_key(connection, owner)
            gone.add(owner)
            del kept[tenant][owner]
            kept[tenant] |= await make_keys(database, keyring, tenant, 1)
            assert await load_keys(database, keyring, tenant) == kept[tenant]

    async def end(tenant: UUID) -> None:
        await live(tenant)
        async with database.transaction(tenant=tenant) as connection:
            assert await destroy_tenant_keys(connection, tenant)
        gone.update(kept.pop(tenant))

    await asyncio.gather(rotate(), live(tenants[0]), live(tenants[1]), end(tenants[2]), end(tenants[3]))
    await rotate()
    for tenant in tenants:
        found = await load_keys(database, Keyring(rotating.provider), tenant)
        assert found == kept.get(tenant, {})
        assert not gone & set(found)
        assert len(await list_tenant_keys(database, tenant)) == (tenant in kept)
    assert len(rotating.provider.known_root_keys()) == 1


async def test_one_rotation_at_a_time(database: Database) -> None:
    """A second one is refused while the first lasts, and allowed when it is over or has died."""
    async with exclusive_rotation(database) as first, exclusive_rotation(database) as second:
        assert (first, second) == (True, False)
    async with exclusive_rotation(database) as third:
        assert third
    with pytest.raises(RuntimeError):
        async with exclusive_rotation(database):
            raise RuntimeError("killed")
    async with exclusive_rotation(database) as fourth:
        assert fourth


async def test_a_damaged_key_is_named_and_keeps_nobody_back(
    database: Database, rotating: Keyring, make_tenant: MakeTenant
) -> None:
    """Every other tenant comes under the new root key, and the old one is kept for whoever it still wraps."""
    tenants = [(await make_tenant(name)).id for name in ("acme", "other", "third")]
    before = {tenant: await make_keys(database, rotating, tenant, 1) for tenant in tenants}
    old = rotating.provider.root_key_id
    damaged, lost, intact = sorted(tenants)
    for tenant, values in ((damaged, {"wrapped_key": b"damaged"}), (lost, {"root_key_id": "lost"})):
        async with database.transaction(tenant=tenant) as connection:
            await connection.execute(update(tenant_keys).values(values))
    with pytest.raises(DecryptionError, match=f"tenant-key of tenant {damaged}"):
        await rotate_root_key(database, rotating, anew=True)
    found = await read_root_keys(database, rotating.provider, quietly)
    assert dict(found.tenant_keys) == {old: 1, "lost": 1, found.current: 1}
    assert await load_keys(database, Keyring(rotating.provider), intact) == before[intact]
    assert await destroy_old_root_keys(database, rotating.provider, found, CAUSE) == []
    async with database.transaction(tenant=damaged) as connection:
        await connection.execute(tenant_keys.delete())
    with pytest.raises(RootKeyError, match="root key lost"):
        await rotate_root_key(database, rotating)
    assert len(rotating.provider.known_root_keys()) == 2


async def test_a_provider_that_still_wraps_with_the_old_key_is_not_believed(
    database: Database, rotating: Keyring, make_tenant: MakeTenant
) -> None:
    """An alias that points to the new key only after a while does not count as a rotation."""
    await make_keys(database, rotating, (await make_tenant("acme")).id, 1)
    old = rotating.provider.root_key_id

    class Late(type(rotating.provider)):  # type: ignore[misc]
        def make_root_key(self) -> str:
            return "arn:new"

    late: KeyProvider = Late([new_key()])
    late.__dict__.update(rotating.provider.__dict__)
    with pytest.raises(ServerUnavailable, match="run the rotation again"):
        await rotate_root_key(database, Keyring(late))
    assert (await read_root_keys(database, rotating.provider, quietly)).in_use == {old}


async def test_a_dump_from_before_is_dead_when_the_old_root_key_is(
    settings: Settings,
    database: Database,
    keyring: Keyring,
    rotating: Keyring,
    make_tenant: MakeTenant,
    make_voice: MakeVoice,
) -> None:
    """A copy of the whole database, keyring and all, opens until the root key of its time is destroyed."""
    tenant = (await make_tenant("acme")).id
    voice = await make_voice(tenant, embedding=b"a voiceprint")
    await database.close()
    name = make_url(settings.database_url).database or ""
    owner = make_url(settings.owner_url).set(database="postgres").render_as_string(hide_password=False)
    with psycopg.connect(owner, autocommit=True) as connection:
        both = sql.Identifier(f"{name}_dump"), sql.Identifier(name)
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(*both))
        try:
            url = make_url(settings.database_url).set(database=f"{name}_dump").render_as_string(hide_password=False)
            restored = Database.for_service(settings.model_copy(update={"database_url": url}))
            assert await _embedding(restored, Keyring(rotating.provider), tenant, voice) == b"a voiceprint"
            await rotate_root_key(database, rotating, destroy_old=True)
            assert await _embedding(database, Keyring.from_settings(settings), tenant, voice) == b"a voiceprint"
            for process in (Keyring.from_settings(settings), Keyring(rotating.provider)):
                with pytest.raises(RootKeyError, match="not among those that are configured"):
                    await _embedding(restored, process, tenant, voice)
            await restored.close()
        finally:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(both[0]))


async def _embedding(database: Database, keyring: Keyring, tenant: UUID, voice: UUID) -> bytes | None:
    async with database.transaction(tenant=tenant) as connection:
        return await load_embedding(connection, keyring, tenant, voice, 1)
