"""A recording that was replaced is gone as one that was deleted is: no old backup opens with the keyring of today."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.database import Database
from storage.encryption.envelope import Kind, Label, unseal
from storage.encryption.keyring import Keyring
from storage.encryption.tenant_rotation import Cause, rotate_tenant
from storage.errors import DecryptionError
from storage.tables import voice_versions
from storage.voices.consents import grant_consent
from storage.voices.versions import Enrolled, add_version, complete_enrolment, load_embedding, load_held
from tests.conftest import STATEMENT, TERMS, MakeTenant, MakeVoice

OLD, NEW = b"o" * 1024, b"n" * 1024


async def _replace(connection: AsyncConnection, keyring: Keyring, tenant: UUID, voice: UUID) -> None:
    consent = await grant_consent(connection, keyring, tenant, TERMS, STATEMENT)
    await add_version(connection, keyring, tenant, voice, consent=consent.id, upload=b"another person")
    await complete_enrolment(connection, keyring, tenant, voice, 2, Enrolled(b"another", NEW, 6.0, 90, {}))


async def _back_up(connection: AsyncConnection, voice: UUID) -> Any:
    columns: tuple[Any, ...] = (voice_versions.c.recording, voice_versions.c.embedding)
    return (await connection.execute(select(*columns).where(voice_versions.c.voice_id == voice))).one()


async def test_the_voices_key_of_today_does_not_open_what_was_replaced(
    database: Database, keyring: Keyring, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """Its person may have withdrawn since, while the voice goes on with another's: the new version has another key."""
    tenant = (await make_tenant("acme")).id
    voice = await make_voice(tenant, embedding=OLD)
    async with database.transaction(tenant=tenant) as connection:
        backup = await _back_up(connection, voice)
        await _replace(connection, keyring, tenant, voice)
    async with database.transaction(tenant=tenant) as connection:
        assert await load_embedding(connection, keyring, tenant, voice, 2) == NEW
        assert await load_held(connection, keyring, Label(tenant, voice, Kind.RECORDING, 2)) == b"another"
        key = await keyring.load_data_key(connection, tenant, voice)
        assert key is not None
        for kind, sealed in ((Kind.RECORDING, backup.recording), (Kind.EMBEDDING, backup.embedding)):
            with pytest.raises(DecryptionError):
                unseal(key, sealed, Label(tenant, voice, kind, 1))


async def test_whoever_looks_while_it_is_replaced_finds_one_or_the_other_or_nothing(
    database: Database, keyring: Keyring, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """Never what does not decrypt, and a rotation beside it changes nothing."""
    tenant = (await make_tenant("acme")).id
    voice = await make_voice(tenant, embedding=OLD)
    replaced = asyncio.Event()

    async def look() -> set[bytes | None]:
        found = set()
        while not replaced.is_set():
            async with database.transaction(tenant=tenant) as connection:
                found.add(await load_embedding(connection, keyring, tenant, voice, 1))
        return found

    async def replace() -> None:
        async with database.transaction(tenant=tenant) as connection:
            await _replace(connection, keyring, tenant, voice)
        await rotate_tenant(database, keyring, tenant, Cause("operator:cli", "cli"))
        replaced.set()

    (found, *_), _ = await asyncio.gather(asyncio.gather(look(), look()), replace())
    assert found <= {OLD, None}
    async with database.transaction(tenant=tenant) as connection:
        assert await load_embedding(connection, keyring, tenant, voice, 2) == NEW
