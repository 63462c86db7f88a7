"""`timbrelay backup` and `timbrelay restore`, over a real Postgres: what an old backup can bring back, and what not."""

from __future__ import annotations

import os
import secrets
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from psycopg import sql
from pydantic import SecretStr
from sqlalchemy import make_url

from storage.database import Database
from storage.encryption.envelope import Kind, Label
from storage.encryption.keyring import Keyring
from storage.errors import RootKeyError
from storage.evidence.audit import read_audit
from storage.evidence.deletions import ObjectKind, Reason, Request, list_deletions, request_deletion
from storage.evidence.erasure import Erasure
from storage.evidence.receipts import verify_receipt
from storage.evidence.signing import load_public_keys
from storage.paging import Page
from storage.redis import connect
from storage.settings import Settings
from storage.states import DeletionState
from storage.tenancy.tenants import find_tenant
from storage.voices.consents import Statement, find_consent, load_statement
from storage.voices.versions import load_embedding, load_held
from storage.voices.voices import find_voice
from tests.conftest import MakeTenant, MakeVoice

DEADLINE_S = 60.0
RAW = bytes(range(256)) * 4

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A new, empty database on the same server."""

    settings: Settings

    def open(self) -> Database:
        return Database.for_service(self.settings)


@pytest.fixture
def elsewhere(settings: Settings) -> Iterator[Elsewhere]:
    name = f"restored_{secrets.token_hex(6)}"
    with psycopg.connect(settings.owner_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        urls = {
            field: make_url(getattr(settings, field)).set(database=name).render_as_string(hide_password=False)
            for field in ("database_url", "database_owner_url")
        }
        yield Elsewhere(settings.model_copy(update=urls))
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def run(clean_variables: dict[str, str], tmp_path: Path) -> Run:
    """`run(settings, "backup", "data.dump")`; it has to succeed unless `code` says otherwise."""

    def execute(settings: Settings, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        variables = {
            **clean_variables,
            "DATABASE_URL": settings.database_url,
            "DATABASE_OWNER_URL": settings.owner_url,
            "REDIS_URL": settings.redis_url,
            "TIMBRELAY_ROOT_KEY": settings.root_key.get_secret_value(),
            "TIMBRELAY_ROOT_KEY_FILE": str(settings.root_key_file),
            "TIMBRELAY_HOME": str(tmp_path / "home"),
        }
        command = [sys.executable, "-m", "timbrelay", *arguments]
        result = subprocess.run(
            command, env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S
        )
        assert result.returncode == code, result.stderr
        return result

    return execute


async def _delete(settings: Settings, tenant: UUID, kind: ObjectKind, wanted: UUID) -> None:
    database, redis = Database.for_service(settings), connect(settings.redis_url)
    request = Request(kind, wanted, Reason.REQUESTED, "key:test", "127.0.0.1")
    async with database.transaction(tenant=tenant) as connection:
        deletion = await request_deletion(connection, tenant, request)
    assert deletion is not None
    done = await Erasure(database, redis, Keyring.from_settings(settings)).run(tenant, deletion.id)
    assert done.state is DeletionState.DONE
    await redis.aclose()
    await database.close()


async def _read(database: Database, keyring: Keyring, tenant: UUID, voice: UUID) -> tuple[bytes | None, bytes | None]:
    async with database.transaction(tenant=tenant) as connection:
        embedding = await load_embedding(connection, keyring, tenant, voice, 1)
        return embedding, await load_held(connection, keyring, Label(tenant, voice, Kind.RECORDING, 1))


async def test_an_old_backup_brings_no_deleted_voice_back(
    settings: Settings, elsewhere: Elsewhere, make_tenant: MakeTenant, make_voice: MakeVoice, run: Run, tmp_path: Path
) -> None:
    """Backed up, deleted, restored with today's keyring: it cannot be decrypted and is deleted again, with a receipt;
    its neighbours, and their consents, are whole."""
    acme, other = (await make_tenant("acme")).id, (await make_tenant("other")).id
    gone, neighbour = await make_voice(acme, embedding=RAW), await make_voice(acme, embedding=RAW)
    stranger = await make_voice(other, embedding=RAW)
    run(settings, "backup", "old.dump")
    await _delete(settings, acme, ObjectKind.VOICE, gone)
    run(settings, "backup", "--keyring", "today.keys")
    run(elsewhere.settings, "restore", "old.dump")
    database, keyring = elsewhere.open(), Keyring.from_settings(settings)
    async with database.transaction(tenant=acme) as connection:
        assert await find_voice(connection, acme, gone) is not None
    assert await _read(database, keyring, acme, neighbour) == (None, None)
    result = run(elsewhere.settings, "restore", "--keyring", "today.keys")
    assert "deleted again: 1 voices, 0 consents, 0 tenants" in result.stdout
    assert await _read(database, keyring, acme, gone) == (None, None)
    assert await _read(database, keyring, acme, neighbour) == (RAW, b"recording")
    assert await _read(database, keyring, other, stranger) == (RAW, b"recording")
    async with database.transaction(tenant=acme) as connection:
        assert await find_voice(connection, acme, gone) is None
        (again,) = (await list_deletions(connection, acme, Page())).items
        assert again.reason is Reason.RESTORED
        assert verify_receipt(again.receipt or "", await load_public_keys(connection)).object.matches(gone)
        left = await find_voice(connection, acme, neighbour)
        assert left is not None
        statement = await load_statement(connection, keyring, acme, left.consent_id)
        assert isinstance(statement, Statement)
        assert (await read_audit(connection, acme))[-1].action == "voice.deleted"
    await database.close()


async def test_no_key_of_a_deleted_voice_is_in_either_backup(
    settings: Settings, make_tenant: MakeTenant, make_voice: MakeVoice, run: Run, tmp_path: Path
) -> None:
    """The data's backup holds no wrapped key, the keyring's none of what was deleted, and both are for one reader."""
    tenant = (await make_tenant("acme")).id
    gone, kept = await make_voice(tenant, embedding=RAW), await make_voice(tenant, embedding=RAW)
    await _delete(settings, tenant, ObjectKind.VOICE, gone)
    with psycopg.connect(settings.owner_url) as connection:
        wrapped = connection.execute("SELECT owner_id, wrapped_key FROM keyring.data_keys").fetchall()
    assert kept in {owner for owner, _ in wrapped}
    for name, options, holds in (("data", (), False), ("keys", ("--keyring",), True)):
        run(settings, "backup", *options, name)
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
        plain = _to_text(tmp_path / name)
        assert all((key.hex() in plain) is holds for _, key in wrapped)
        assert (str(kept) in plain) is True
        assert "keyring" not in plain or holds
        if holds:
            assert str(gone) not in plain


def _to_text(dump: Path) -> str:
    from timbrelay.stack.binaries import find_dump_programs

    program = find_dump_programs(os.environ.get("PATH"), 1).restore
    result = subprocess.run([program, "--data-only", "--file=-", dump], capture_output=True, text=True, check=False)
    if result.returncode:
        program = find_dump_programs("", 1).restore
        result = subprocess.run([program, "--data-only", "--file=-", dump], capture_output=True, text=True, check=True)
    return result.stdout


async def test_what_goes_with_a_consent_and_a_tenant_does_not_come_back_either(
    settings: Settings, elsewhere: Elsewhere, make_tenant: MakeTenant, make_voice: MakeVoice, run: Run
) -> None:
    """A withdrawn consent with its voice, and a whole tenant, are deleted again; who stayed is untouched."""
    acme, other = (await make_tenant("acme")).id, (await make_tenant("other")).id
    gone, kept, lost = [await make_voice(tenant, embedding=RAW) for tenant in (acme, acme, other)]
    source = Database.for_service(settings)
    async with source.transaction(tenant=acme) as connection:
        voice = await find_voice(connection, acme, gone)
        assert voice is not None
    await source.close()
    run(settings, "backup", "old.dump")
    await _delete(settings, acme, ObjectKind.CONSENT, voice.consent_id)
    await _delete(settings, other, ObjectKind.TENANT, other)
    run(settings, "backup", "--keyring", "today.keys")
    result = run(elsewhere.settings, "restore", "old.dump", "--keyring", "today.keys")
    assert "deleted again: 0 voices, 1 consents, 1 tenants" in result.stdout
    database, keyring = elsewhere.open(), Keyring.from_settings(settings)
    assert await _read(database, keyring, acme, kept) == (RAW, b"recording")
    async with database.transaction(tenant=acme) as connection:
        assert await find_consent(connection, acme, voice.consent_id) is None
        assert await find_voice(connection, acme, gone) is None
    async with database.transaction(tenant=other) as connection:
        assert await find_voice(connection, other, lost) is None
        tenant = await find_tenant(connection, other)
    assert tenant is not None
    assert tenant.state == "deleted"
    await database.close()


async def test_a_full_dump_is_closed_once_its_root_key_is_destroyed(
    settings: Settings, elsewhere: Elsewhere, make_tenant: MakeTenant, make_voice: MakeVoice, run: Run, tmp_path: Path
) -> None:
    """Data and keyring of before a rotation hold the deleted voice and its wrapped key, and nothing opens them."""
    root = tmp_path / "root.key"
    root.write_text(settings.root_key.get_secret_value())
    root.chmod(0o600)
    with_file = {"root_key": SecretStr(""), "root_key_file": root}
    settings = settings.model_copy(update=with_file)
    tenant = (await make_tenant("acme")).id
    voice, neighbour = await make_voice(tenant, embedding=RAW), await make_voice(tenant, embedding=RAW)
    run(settings, "backup", "old.dump")
    run(settings, "backup", "--keyring", "old.keys")
    await _delete(settings, tenant, ObjectKind.VOICE, voice)
    before = Keyring.from_settings(settings)
    run(settings, "keys", "rotate", "--root", "--destroy-old")
    source = Database.for_service(settings)
    assert await _read(source, Keyring.from_settings(settings), tenant, neighbour) == (RAW, b"recording")
    await source.close()
    restored = elsewhere.settings.model_copy(update=with_file)
    run(restored, "restore", "old.dump", "--keyring", "old.keys")
    database = elsewhere.open()
    assert await _read(database, before, tenant, voice) == (RAW, b"recording")
    with pytest.raises(RootKeyError):
        await _read(database, Keyring.from_settings(restored), tenant, voice)
    await database.close()


async def test_it_restores_into_nothing_but_an_empty_database(
    settings: Settings, make_tenant: MakeTenant, run: Run, tmp_path: Path
) -> None:
    """A database in use, a file that is there, files in each other's place, and nonsense are refused, and say why."""
    await make_tenant("acme")
    run(settings, "backup", "data")
    run(settings, "backup", "--keyring", "keys")
    (tmp_path / "nonsense").write_bytes(b"nonsense")
    for arguments, reason in (
        (("restore", "data"), "The database is not empty: public."),
        (("backup", "data"), "is there already"),
        (("restore", "keys"), "holds the keyring, not the data"),
        (("restore", "--keyring", "data"), "holds the data, not the keyring"),
        (("restore", "nonsense"), "is no backup"),
        (("restore", "nowhere"), "is not there"),
        (("restore",), "Name a backup"),
    ):
        assert reason in run(settings, *arguments, code=2).stderr
    left = sorted(path.name for path in tmp_path.iterdir() if path.is_file())  # noqa: ASYNC240
    assert left == ["data", "keys", "nonsense"]


async def test_who_sees_no_rows_is_told_so(settings: Settings, make_tenant: MakeTenant, run: Run) -> None:
    """The service's own login would make an empty backup; it is refused with the fix."""
    await make_tenant("acme")
    service = settings.model_copy(update={"database_owner_url": settings.database_url})
    assert "BYPASSRLS" in run(service, "backup", "data", code=1).stderr
