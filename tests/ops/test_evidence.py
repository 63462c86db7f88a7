"""`timbrelay audit` and `timbrelay receipts`, as an operator or a lawyer runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import text

from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.evidence.audit import PLATFORM, Act, append, read_head
from storage.evidence.checkpoints import write_checkpoint
from storage.evidence.receipts import Receipt, SaltedId, StoreOutcome, sign_receipt
from storage.evidence.signing import load_signer
from storage.settings import Settings

DEADLINE_S = 60.0
VOICE = uuid4()
ACME = uuid4()

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(settings: Settings, clean_variables: dict[str, str], tmp_path: Path) -> Run:
    """`run("audit", "verify")` on the test's servers; with `servers=False` there are none it could reach."""
    given = {
        "DATABASE_URL": settings.database_url,
        "DATABASE_OWNER_URL": settings.owner_url,
        "REDIS_URL": settings.redis_url,
        "TIMBRELAY_ROOT_KEY": settings.root_key.get_secret_value(),
    }

    def execute(*arguments: str, servers: bool = True) -> subprocess.CompletedProcess[str]:
        nowhere = {"DATABASE_URL": "postgresql://127.0.0.1:1/none", "REDIS_URL": "redis://127.0.0.1:1"}
        variables = {**clean_variables, **(given if servers else nowhere), "TIMBRELAY_HOME": str(tmp_path / "home")}
        command = [sys.executable, "-m", "timbrelay", *arguments]
        return subprocess.run(command, env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S)

    return execute


@pytest.fixture
async def superuser(settings: Settings) -> AsyncIterator[Database]:
    opened = Database(settings.owner_url, "")
    yield opened
    await opened.close()


@pytest.fixture
async def log(database: Database, keyring: Keyring, superuser: Database) -> None:
    """Three entries for the tenant acme, one for the platform, all signed."""
    async with superuser.transaction() as connection:
        await connection.execute(text("INSERT INTO tenants (id, name) VALUES (:id, 'acme')"), {"id": ACME})
    for tenant, count in ((ACME, 3), (PLATFORM, 1)):
        async with database.transaction(tenant=tenant) as connection:
            acts = (Act("key:7", "voice.created", "voice", str(VOICE), "cli", {"count": n}) for n in range(count))
            await append(connection, tenant, *acts)
            assert (await write_checkpoint(connection, keyring, tenant)).sound


@pytest.fixture
async def receipt(log: None, database: Database, keyring: Keyring, tmp_path: Path) -> Path:
    """A receipt for the deletion of VOICE, in a file."""
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    async with database.transaction(tenant=ACME) as connection:
        head = await read_head(connection, ACME)
        signer = await load_signer(connection, keyring)
    salted = {known: SaltedId.of(known) for known in (VOICE, ACME)}
    stores = {"rows": StoreOutcome("done", 4, now)}
    made = Receipt(
        uuid4(), "voice", salted[VOICE], salted[ACME], "requested", now, now, stores, (salted[VOICE],), "0.1.0", head
    )
    file = tmp_path / "receipt.jws"
    file.write_text(sign_receipt(signer, made) + "\n")
    return file


async def tamper(superuser: Database, statement: str) -> None:
    async with superuser.transaction() as connection:
        await connection.execute(text("SET LOCAL session_replication_role = replica"))
        await connection.execute(text(statement), {"tenant": ACME})


def test_sound_logs_are_said_to_be_sound(log: None, run: Run) -> None:
    """`audit verify` goes through every log, says how far each is signed, and exits with 0."""
    result = run("audit", "verify")
    assert (result.returncode, result.stderr.strip()) == (0, "Verifying the audit logs ...")
    platform, acme = result.stdout.splitlines()
    assert platform.startswith("(platform)  sound: 1 entries, signed up to entry 1")
    assert acme.startswith("acme  sound: 3 entries, signed up to entry 3")


async def test_a_broken_log_is_named(log: None, run: Run, superuser: Database) -> None:
    """`audit verify` names the first broken place and why, as text and as JSON, and exits with 1."""
    await tamper(superuser, "UPDATE audit_log SET actor = 'key:8' WHERE tenant_id = :tenant AND sequence = 2")
    result = run("audit", "verify", "--tenant", "acme", "--json")
    assert result.returncode == 1
    assert "acme, at entry 2, where the entry was changed" in result.stderr
    report = json.loads(result.stdout)
    assert report["sound"] is False
    assert report["chains"][0]["broken"]["sequence"] == 2
    assert report["chains"][0]["tenant"] == str(ACME)
    result = run("audit", "verify")
    assert result.returncode == 1
    assert "acme  BROKEN at entry 2" in result.stdout


def test_the_last_entries_are_shown(log: None, run: Run) -> None:
    """`audit show` prints the last entries as JSON lines, by the tenant's name or id; without one the platform's."""
    for named in ("acme", str(ACME)):
        shown = [
            json.loads(line) for line in run("audit", "show", "--tenant", named, "--limit", "2").stdout.splitlines()
        ]
        assert [(entry["sequence"], entry["detail"]) for entry in shown] == [(2, {"count": 1}), (3, {"count": 2})]
        assert (shown[0]["object_id"], shown[0]["actor"]) == (str(VOICE), "key:7")
    assert len(run("audit", "show").stdout.splitlines()) == 1
    unknown = run("audit", "show", "--tenant", "nobody")
    assert (unknown.returncode, unknown.stderr) == (2, "There is no tenant with the name or id 'nobody'.\n")


def test_a_receipt_is_checked_without_the_service(receipt: Path, run: Run, tmp_path: Path) -> None:
    """With the published keys in a file, a receipt is checked on a machine that reaches no server."""
    keys = tmp_path / "keys.json"
    keys.write_text(run("receipts", "keys").stdout)
    assert {key["crv"] for key in json.loads(keys.read_text())["keys"]} == {"Ed25519"}
    result = run("receipts", "verify", str(receipt), "--keys", str(keys), "--id", str(VOICE), servers=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert f"a voice was deleted, and it is {VOICE}" in result.stdout
    assert "rows: done, 4 removed" in result.stdout
    result = run("receipts", "verify", str(receipt), "--keys", str(keys), "--id", str(uuid4()), servers=False)
    assert result.returncode == 1
    assert "for another object" in result.stderr
    receipt.write_text(receipt.read_text().replace(".", ".e", 1))
    result = run("receipts", "verify", str(receipt), "--keys", str(keys), servers=False)
    assert (result.returncode, result.stdout) == (1, "")
    assert "proves nothing" in result.stderr


async def test_a_receipt_convicts_a_log_that_was_cut_off(receipt: Path, run: Run, superuser: Database) -> None:
    """With the database's keys, the log has to have the entry that the receipt tells of, also after a rotation."""
    assert run("receipts", "rotate").returncode == 0
    result = run("receipts", "verify", str(receipt))
    assert result.returncode == 0
    assert "audit log     of acme, still has entry 3" in result.stdout
    shown = json.loads(run("audit", "show").stdout.splitlines()[-1])
    assert (shown["action"], shown["actor"]) == ("keys.signing_rotated", "operator:cli")
    # Whoever removes the tail and the signed heads alike does not get the receipts.
    await tamper(superuser, "DELETE FROM audit_checkpoints WHERE tenant_id = :tenant")
    await tamper(superuser, "DELETE FROM audit_log WHERE tenant_id = :tenant AND sequence = 3")
    assert run("audit", "verify").returncode == 0
    result = run("receipts", "verify", str(receipt))
    assert result.returncode == 1
    assert "cut off or rewritten" in result.stderr


@pytest.mark.parametrize(
    ("content", "keys", "arguments", "code", "sentence"),
    [
        (b"nonsense", b'{"keys": []}', (), 1, "has 1 parts"),
        (b"\xff", b'{"keys": []}', (), 1, "no signed text"),
        (b"a.b.c", b"nonsense", (), 2, "no JWK set"),
        (b"a" * 2_000_000, b'{"keys": []}', (), 2, "is larger than"),
        (None, b'{"keys": []}', (), 2, "cannot be read"),
        (b"a.b.c", b'{"keys": []}', ("--id", "x"), 2, "is no id"),
    ],
)
def test_what_is_no_receipt_gets_a_sentence(
    run: Run, tmp_path: Path, content: bytes | None, keys: bytes, arguments: tuple[str, ...], code: int, sentence: str
) -> None:
    """A file that proves nothing exits with 1, one that cannot be meant with 2, each with its reason."""
    (tmp_path / "keys.json").write_bytes(keys)
    if content is not None:
        (tmp_path / "receipt.jws").write_bytes(content)
    result = run("receipts", "verify", "receipt.jws", "--keys", "keys.json", *arguments, servers=False)
    assert (result.returncode, result.stdout) == (code, "")
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr
