"""`timbrelay keys rotate` and `keys status`: as they are typed, and killed at every step."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import secrets
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import SecretStr

from storage.database import Database
from storage.encryption.keyring import Keyring, destroy_data_key
from storage.encryption.providers.local import LocalKeys, read_keys
from storage.evidence.audit import PLATFORM
from storage.evidence.signing import load_signer
from storage.private_files import write_private
from storage.settings import Settings
from tests.conftest import MakeTenant
from tests.storage.keyrings import list_tenant_keys, load_keys, make_keys

ROOT = Path(__file__).resolve().parents[2]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def key_file(settings: Settings, tmp_path: Path) -> Path:
    """The root key of `settings` as a file."""
    write_private(tmp_path / "root.key", settings.root_key.get_secret_value() + "\n")
    return tmp_path / "root.key"


@pytest.fixture
def variables(settings: Settings, tmp_path: Path, key_file: Path, clean_variables: dict[str, str]) -> dict[str, str]:
    """What the command line finds in its environment."""
    return {
        **clean_variables,
        "TIMBRELAY_HOME": str(tmp_path / "home"),
        "TIMBRELAY_ROOT_KEY_FILE": str(key_file),
        "DATABASE_URL": settings.database_url,
        "DATABASE_OWNER_URL": settings.owner_url,
        "REDIS_URL": settings.redis_url,
    }


@pytest.fixture
def run(variables: dict[str, str], tmp_path: Path) -> Run:
    """`run("keys", "status")`, with further variables as keywords."""

    def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "timbrelay", *arguments]
        given = {**variables, **more}
        return subprocess.run(command, env=given, cwd=tmp_path, capture_output=True, text=True, timeout=60)

    return run


def _content(file: Path) -> str:
    return file.read_text().strip()


async def test_rotation_as_it_is_typed(
    run: Run, settings: Settings, database: Database, keyring: Keyring, make_tenant: MakeTenant, key_file: Path
) -> None:
    """Status, dry run, rotation of everything with the old root key's end, status; and no key is ever printed."""
    tenant = (await make_tenant("acme")).id
    before = await make_keys(database, keyring, tenant, 3)
    old_line = _content(key_file)
    old = keyring.provider.root_key_id
    said = [run("keys", "status"), run("keys", "rotate", "--all", "--dry-run")]
    assert said[0].stdout == f"{old}  current  wraps 1 tenant key, 0 signing keys\n"
    assert "make a new root key and wrap 1 key anew" in said[1].stdout
    assert f"tenant {tenant} a new key and wrap 3 data keys anew" in said[1].stdout
    assert _content(key_file) == old_line
    said += [run("keys", "rotate", "--all", "--destroy-old"), run("keys", "status")]
    new_line = _content(key_file)
    assert f"The root key {old} is destroyed." in said[2].stdout
    assert "3 data keys wrapped anew" in said[2].stdout
    assert said[3].stdout.endswith("  current  wraps 1 tenant key, 0 signing keys\n")
    assert len(new_line.splitlines()) == 1
    assert [done.returncode for done in said] == [0] * 4, said
    for done in said:
        assert not {old_line, new_line} & set((done.stdout + done.stderr).split())
    fresh = Keyring.from_settings(settings.model_copy(update={"root_key": SecretStr(new_line)}))
    assert await load_keys(database, fresh, tenant) == before


async def test_one_tenant_is_rotated_by_name_or_id(
    run: Run, database: Database, keyring: Keyring, make_tenant: MakeTenant
) -> None:
    """The others and the root key stay; a name that nobody has is wrong usage."""
    tenant, other = (await make_tenant("acme")).id, (await make_tenant("other")).id
    before = {one: await make_keys(database, keyring, one, 2) for one in (tenant, other)}
    for named in ("acme", str(tenant)):
        done = run("keys", "rotate", "--tenant", named)
        assert (done.returncode, "2 data keys wrapped anew" in done.stdout) == (0, True), done
    assert run("keys", "rotate", "--tenant", "nobody").returncode == 2
    for one, keys in before.items():
        assert await load_keys(database, keyring, one) == keys


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "Say what to rotate"),
        (("--tenant", "acme", "--all"), "Say what to rotate"),
        (("--tenant", "acme", "--destroy-old"), "--destroy-old and --new go with"),
        (("--tenant", "acme", "--new"), "--destroy-old and --new go with"),
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(run: Run, arguments: tuple[str, ...], sentence: str) -> None:
    """Exit code 2 and a sentence, and no server is asked."""
    done = run("keys", "rotate", *arguments, DATABASE_URL="postgresql://127.0.0.1:9/none")
    assert (done.returncode, sentence in done.stderr) == (2, True), done


async def test_a_root_key_in_the_environment_is_followed_not_made(
    run: Run, settings: Settings, database: Database, keyring: Keyring, make_tenant: MakeTenant
) -> None:
    """Without a new one it says what to do; with one put before it, everything is wrapped anew under that."""
    tenant = (await make_tenant("acme")).id
    before = await make_keys(database, keyring, tenant, 1)
    old, new = settings.root_key.get_secret_value(), base64.b64encode(secrets.token_bytes(32)).decode()
    refused = run("keys", "rotate", "--root", TIMBRELAY_ROOT_KEY=old)
    assert (refused.returncode, "put a new one before it" in refused.stderr) == (1, True), refused
    done = run("keys", "rotate", "--root", TIMBRELAY_ROOT_KEY=f"{new},{old}")
    assert done.returncode == 0, done
    alone = Keyring.from_settings(settings.model_copy(update={"root_key": SecretStr(new)}))
    assert await load_keys(database, alone, tenant) == before
    refused = run("keys", "rotate", "--root", TIMBRELAY_ROOT_KEY=old)
    assert (refused.returncode, "not among those that are configured" in refused.stderr) == (1, True), refused


async def test_every_command_of_the_documentation_works(
    run: Run, database: Database, keyring: Keyring, make_tenant: MakeTenant
) -> None:
    """The `console` blocks of docs/keys.md, in their order."""
    await make_keys(database, keyring, (await make_tenant("acme")).id, 2)
    blocks = re.findall(r"```console\n(.*?)```", _content(ROOT / "docs" / "keys.md"), re.DOTALL)
    lines = [shlex.split(line) for block in blocks for line in block.splitlines()]
    assert len(lines) == 6
    for word, *arguments in lines:
        done = run(*arguments)
        assert (word, done.returncode) == ("./dev", 0), done


KILLED = """
import asyncio, contextlib, os, signal, sys
from sqlalchemy import text
from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.encryption.providers.local import LocalKeys
from storage.settings import Settings
from timbrelay.commands.key_rotation import Plan, _Keys, _rotate
from timbrelay.console import Bar

left = int(sys.argv[1])

def step():
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

class Mortal(Database):
    @contextlib.asynccontextmanager
    async def transaction(self, **given):
        async with super().transaction(**given) as connection:
            yield connection
            wrote = (await connection.execute(text("SELECT pg_current_xact_id_if_assigned()::text"))).scalar()
            if wrote:
                step()
        if wrote:
            step()

class MortalKeys(LocalKeys):
    def make_root_key(self):
        made = super().make_root_key()
        step()
        return made

    def destroy_root_key(self, root_key_id):
        super().destroy_root_key(root_key_id)
        step()

async def main():
    settings = Settings.read()
    database = Mortal.for_service(settings, pool_size=2)
    keys = _Keys(database, Keyring(MortalKeys.from_settings(settings)), Bar(None, None))
    await _rotate(keys, Plan(root=True, tenants=True, destroy_old=True))
    await database.close()

def run():
    if not (child := os.fork()):
        asyncio.run(main())
        os._exit(0)
    return os.waitpid(child, 0)[1]

for left in range(1, 100):
    status = run()
    if status == 0:
        break
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status
    print("killed", flush=True)
    sys.stdin.readline()
    left = 0
    assert run() == 0
    print("resumed", flush=True)
    sys.stdin.readline()
print("done", flush=True)
"""


async def test_a_rotation_that_is_killed_at_any_step_goes_on(
    variables: dict[str, str], database: Database, keyring: Keyring, make_tenant: MakeTenant, key_file: Path
) -> None:
    """`kill -9` before and after every write: all keys open at once with the file as it is, and again when resumed.

    In the end there is one root key, one key a tenant, and nothing that was destroyed meanwhile has come back.
    """
    tenant = (await make_tenant("acme")).id
    expected = {one: await make_keys(database, keyring, one, 3) for one in (tenant, PLATFORM)}
    async with database.transaction(tenant=PLATFORM) as connection:
        signing = (await load_signer(connection, keyring)).key_id
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", KILLED, "0"),
        env={**variables, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    said: list[str] = []
    while (line := (await process.stdout.readline()).decode().strip()) not in ("", "done"):
        said.append(line)
        # Somebody's voice is deleted while the rotation lies dead, and must not be there when it has gone on.
        if line == "killed" and len(expected[tenant]) > 1:
            gone, _ = expected[tenant].popitem()
            async with database.transaction(tenant=tenant) as connection:
                assert await destroy_data_key(connection, gone)
        fresh = Keyring(LocalKeys(read_keys(key_file)))
        for one, keys in expected.items():
            assert await load_keys(database, fresh, one) == keys
            resumed = line == "resumed"
            assert not resumed or len(await list_tenant_keys(database, one)) == 1
        async with database.transaction(tenant=PLATFORM) as connection:
            assert (await load_signer(connection, fresh)).key_id == signing
        assert line != "resumed" or len(read_keys(key_file)) == 1
        process.stdin.write(b"\n")
    assert (await process.wait(), line) == (0, "done")
    assert said.count("killed") == said.count("resumed") >= 15
