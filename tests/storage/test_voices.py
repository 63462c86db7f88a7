"""storage.voices, storage.tenancy and the policies under them, over a real Postgres."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from storage.database import Database, bounded
from storage.encryption.keyring import RootKey
from storage.errors import DecryptionError, IllegalTransition, SchemaMismatch, ServerUnavailable, UnsafeRole
from storage.schema import REVISION, check_revision
from storage.settings import Settings
from storage.tables import VoiceState
from storage.tenancy.tenants import create_key, find_tenant, revoke_key
from storage.voices.consents import Consent, grant_consent, load_consent
from storage.voices.voices import (
    complete_enrolment,
    create_voice,
    delete_voice,
    fail_enrolment,
    find_voice,
    list_voices,
    load_embedding,
    load_upload,
)
from tests.conftest import MakeTenant, MakeVoice

UPLOAD = b"RIFF" + bytes(range(256)) * 8
EMBEDDING = bytes(range(256)) * 4
RECORDING = b"fLaC" + bytes(range(255, -1, -1)) * 8
TENANT_TABLES = ("data_keys", "consents", "voices", "voice_versions")


@pytest.fixture
async def owner(settings: Settings) -> AsyncIterator[Database]:
    opened = Database.for_owner(settings)
    yield opened
    await opened.close()


@pytest.fixture
async def tenant(make_tenant: MakeTenant) -> UUID:
    return (await make_tenant("acme")).id


async def _complete(database: Database, root: RootKey, tenant: UUID, voice: UUID) -> None:
    content = {"recording": RECORDING, "embedding": EMBEDDING, "duration_s": 6.0}
    await complete_enrolment(database, root, tenant, voice, 1, **content)  # type: ignore[arg-type]


async def test_the_service_role_cannot_see_through_row_level_security(database: Database) -> None:
    """Whatever login the service has, its transactions run as a role without superuser or BYPASSRLS."""
    await database.check_role()
    async with database.transaction() as connection:
        row = (
            await connection.execute(
                text("SELECT rolname, rolsuper, rolbypassrls FROM pg_roles WHERE rolname = current_user")
            )
        ).one()
    assert tuple(row) == ("timbrelay_service", False, False)


async def test_a_role_that_sees_everything_is_refused(owner: Database) -> None:
    """Serving as the database's superuser is an error at start, not a silent loss of the fences."""
    with pytest.raises(UnsafeRole):
        await owner.check_role()


@pytest.mark.parametrize("table", TENANT_TABLES)
async def test_every_tenant_table_is_fenced_also_from_its_owner(owner: Database, table: str) -> None:
    """Row-level security is on and forced."""
    query = text("SELECT relrowsecurity, relforcerowsecurity FROM pg_class WHERE relname = :table")
    async with owner.transaction() as connection:
        assert tuple((await connection.execute(query, {"table": table})).one()) == (True, True)


async def test_every_table_with_a_tenant_has_a_policy(owner: Database) -> None:
    """A table that a later migration adds without a policy fails here."""
    query = text(
        "SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
        " WHERE a.attname = 'tenant_id' AND c.relkind = 'r'"
        " AND NOT (c.relrowsecurity AND EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid))"
    )
    async with owner.transaction() as connection:
        assert (await connection.execute(query)).all() == []


@pytest.mark.parametrize("table", [*TENANT_TABLES, "tenants", "api_keys"])
async def test_without_a_tenant_no_row_is_visible(
    database: Database, root: RootKey, tenant: UUID, table: str, make_voice: MakeVoice
) -> None:
    """A transaction that forgot its tenant sees nothing rather than everything."""
    await make_voice(tenant, upload=UPLOAD)
    async with database.transaction() as connection:
        assert (await connection.execute(text(f"SELECT count(*) FROM {table}"))).scalar() == 0  # noqa: S608


async def test_another_tenants_voice_does_not_exist(
    database: Database, root: RootKey, tenant: UUID, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """It cannot be found, listed, loaded or deleted, and its consent cannot be used."""
    voice = await make_voice(tenant, upload=UPLOAD)
    await _complete(database, root, tenant, voice)
    other = (await make_tenant("other")).id
    assert await find_voice(database, other, voice) is None
    assert await list_voices(database, other) == []
    assert await load_embedding(database, root, other, voice, 1) is None
    assert await delete_voice(database, other, voice) is False
    consent, _ = await grant_consent(database, root, tenant, Consent("A. Person", "I agree."))
    assert await create_voice(database, root, other, name="x", consent=consent, upload=UPLOAD) is None
    assert await load_embedding(database, root, tenant, voice, 1) == EMBEDDING


async def test_a_row_cannot_be_written_for_another_tenant(
    database: Database, tenant: UUID, make_tenant: MakeTenant
) -> None:
    """The policy holds for writing as for reading."""
    other = (await make_tenant("other")).id
    statement = text("INSERT INTO consents (id, tenant_id, sealed) VALUES (:id, :tenant, ''::bytea)")
    with pytest.raises(Exception, match="row-level security"):
        async with database.transaction(tenant=other) as connection:
            await connection.execute(statement, {"id": uuid4(), "tenant": tenant})


async def test_an_enrolled_voice_gives_its_embedding_and_keeps_no_upload(
    database: Database, root: RootKey, tenant: UUID, make_voice: MakeVoice
) -> None:
    """Completing an enrolment replaces the upload, and the voice is ready."""
    voice = await make_voice(tenant, upload=UPLOAD)
    assert await load_upload(database, root, tenant, voice, 1) == UPLOAD
    await _complete(database, root, tenant, voice)
    assert await load_upload(database, root, tenant, voice, 1) is None
    assert await load_embedding(database, root, tenant, voice, 1) == EMBEDDING
    found = await find_voice(database, tenant, voice)
    assert found is not None
    assert found.state is VoiceState.READY


async def test_no_table_holds_voice_data_in_the_clear(
    database: Database, owner: Database, root: RootKey, tenant: UUID, make_voice: MakeVoice
) -> None:
    """Neither upload, recording, embedding nor consent is found in any row, in any encoding of Postgres'."""
    first, second = await make_voice(tenant, upload=UPLOAD), await make_voice(tenant, upload=UPLOAD)
    await _complete(database, root, tenant, first)
    assert second != first
    dump = ""
    async with owner.transaction() as connection:
        for table in TENANT_TABLES:
            dump += "".join(str(row) for row in (await connection.execute(text(f"SELECT {table}::text FROM {table}"))))  # noqa: S608
    assert len(dump) > 1000
    for secret in (UPLOAD, RECORDING, EMBEDDING, b"A. Person"):
        assert secret[:16].hex() not in dump
        assert secret[:9].decode("latin-1") not in dump


async def test_deleting_a_voice_destroys_its_key_and_what_it_sealed(
    database: Database, owner: Database, root: RootKey, tenant: UUID, make_voice: MakeVoice
) -> None:
    """After a deletion there is no data key, no version, no name, and no way to use the voice."""
    voice = await make_voice(tenant, upload=UPLOAD)
    await _complete(database, root, tenant, voice)
    assert await delete_voice(database, tenant, voice) is True
    assert await delete_voice(database, tenant, voice) is False
    assert await find_voice(database, tenant, voice) is None
    assert await load_embedding(database, root, tenant, voice, 1) is None
    async with owner.transaction() as connection:
        for query in (
            "SELECT count(*) FROM data_keys WHERE owner_id = :voice",
            "SELECT count(*) FROM voice_versions WHERE voice_id = :voice",
            "SELECT count(*) FROM voices WHERE id = :voice AND name <> ''",
        ):
            assert (await connection.execute(text(query), {"voice": voice})).scalar() == 0


async def test_a_failed_enrolment_says_why_and_keeps_no_recording(
    database: Database, root: RootKey, tenant: UUID, make_voice: MakeVoice
) -> None:
    """The reason stays, the recording goes."""
    voice = await make_voice(tenant, upload=UPLOAD)
    await fail_enrolment(database, tenant, voice, code="recording_silent", message="it is silent")
    found = await find_voice(database, tenant, voice)
    assert found is not None
    assert (found.state, found.error_code) == (VoiceState.FAILED, "recording_silent")
    assert await load_upload(database, root, tenant, voice, 1) is None


async def test_a_voice_that_was_deleted_meanwhile_is_not_completed(
    database: Database, root: RootKey, tenant: UUID, make_voice: MakeVoice
) -> None:
    """An enrolment that finishes after the deletion brings nothing back."""
    voice = await make_voice(tenant, upload=UPLOAD)
    await delete_voice(database, tenant, voice)
    with pytest.raises(IllegalTransition):
        await _complete(database, root, tenant, voice)
    assert await load_embedding(database, root, tenant, voice, 1) is None


async def test_an_embedding_that_was_moved_to_another_voice_does_not_open(
    database: Database, owner: Database, root: RootKey, tenant: UUID, make_voice: MakeVoice
) -> None:
    """Somebody with the database, but not the keys, cannot make one voice speak as another."""
    first, second = await make_voice(tenant, upload=UPLOAD), await make_voice(tenant, upload=UPLOAD)
    await _complete(database, root, tenant, first)
    await _complete(database, root, tenant, second)
    swap = text(
        "UPDATE voice_versions SET embedding = (SELECT embedding FROM voice_versions WHERE voice_id = :first)"
        " WHERE voice_id = :second"
    )
    async with owner.transaction() as connection:
        await connection.execute(swap, {"first": first, "second": second})
    with pytest.raises(DecryptionError):
        await load_embedding(database, root, tenant, second, 1)


async def test_a_consent_is_read_by_its_tenant_alone(
    database: Database, root: RootKey, tenant: UUID, make_tenant: MakeTenant
) -> None:
    """Consents name people, so they are fenced and sealed like voices."""
    consent = Consent("A. Person", "I agree that my voice is cloned.")
    consent_id, _ = await grant_consent(database, root, tenant, consent)
    assert await load_consent(database, root, tenant, consent_id) == consent
    assert await load_consent(database, root, (await make_tenant("other")).id, consent_id) is None


async def test_a_key_opens_its_tenant_until_it_is_revoked(
    database: Database, owner: Database, make_tenant: MakeTenant
) -> None:
    """Only the hash is kept, and a revoked key opens nothing."""
    made = await make_tenant("acme")
    assert await find_tenant(database, made.key) == made.id
    key_id, second = await create_key(owner, made.id)
    assert await revoke_key(owner, key_id) is True
    assert await revoke_key(owner, key_id) is False
    assert await find_tenant(database, second) is None
    assert await find_tenant(database, made.key) == made.id
    async with owner.transaction() as connection:
        dump = str((await connection.execute(text("SELECT api_keys::text FROM api_keys"))).all())
    assert made.key not in dump


@pytest.mark.parametrize("key", ["", "tr_", "tr_" + "x" * 500, "sk-other", "tr_wrong", "tr_\0"])
async def test_what_is_no_key_opens_nothing(database: Database, tenant: UUID, key: str) -> None:
    """Empty, foreign, oversized and unknown keys are all the same: nobody's."""
    assert await find_tenant(database, key) is None


async def test_an_old_schema_is_refused_with_the_fix(database: Database, owner: Database) -> None:
    """A service on a database of another revision says which it needs and how to get there."""
    await check_revision(database)
    async with owner.transaction() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '0000'"))
    with pytest.raises(SchemaMismatch, match="timbrelay migrate") as caught:
        await check_revision(database)
    assert (caught.value.found, caught.value.expected) == ("0000", REVISION)


async def test_a_database_that_is_not_there_is_named() -> None:
    """An unreachable server is ServerUnavailable, not the driver's own error."""
    away = Database("postgresql://nobody@127.0.0.1:1/none", "timbrelay_service")
    with pytest.raises(ServerUnavailable, match="Postgres"):
        await away.ping()
    await away.close()


async def test_work_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is stopped or cut off answers nothing, not even an error; the caller learns it in time."""
    monkeypatch.setattr("storage.database.ANSWER_TIMEOUT_S", 0.05)
    with pytest.raises(ServerUnavailable, match="no answer in time"):
        await bounded(asyncio.sleep(3600))

    async def answer() -> int:
        return 7

    assert await bounded(answer()) == 7
