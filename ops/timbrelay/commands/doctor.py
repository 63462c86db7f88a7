"""`timbrelay doctor`: what is wrong on this machine, a line a thing, each with its fix."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timbrelay.console import say
from timbrelay.environment import Environment
from timbrelay.errors import OpsError
from timbrelay.interruption import Interruption
from timbrelay.stack.folder import MIN_FREE_BYTES, DataFolder
from timbrelay.stack.local import is_ready, open_servers
from timbrelay.stack.ports import DEFAULT_PORT, is_free
from timbrelay.stack.servers import Servers
from timbrelay.stack.settings import read_settings

OLDEST_PYTHON = (3, 11)


@dataclass(frozen=True, slots=True)
class Check:
    """`examine` says what it found; an exception says what is wrong and how to mend it."""

    name: str
    examine: Callable[[], str]


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of one check."""

    name: str
    fine: bool
    text: str

    def __str__(self) -> str:
        return f"{'ok' if self.fine else 'failed':8s}{self.name}: {self.text}"


def examine(checks: list[Check]) -> Iterator[Finding]:
    """Makes each check, whatever came of those before it."""
    from storage.errors import StorageError
    from worker.errors import WorkerError

    for check in checks:
        try:
            yield Finding(check.name, True, check.examine())
        except (OpsError, StorageError, WorkerError, OSError) as error:
            yield Finding(check.name, False, str(error))


def run(environment: Environment, interruption: Interruption) -> None:
    """Prints the findings. Raises OpsError when one of them is bad."""
    failed = 0
    with contextlib.ExitStack() as life:
        for finding in examine(_checks(environment, interruption, life)):
            say(str(finding))
            failed += not finding.fine
    if failed:
        raise OpsError(f"{failed} of the checks failed.")
    say("Everything is in order.")


def _checks(environment: Environment, interruption: Interruption, life: contextlib.ExitStack) -> list[Check]:
    opened: list[Servers] = []

    def open_them() -> str:
        opened.append(life.enter_context(open_servers(environment)))
        interruption.run(_ping(opened[0]))
        return "Postgres and Redis answer"

    def ask(question: Callable[[Servers, Environment], Coroutine[Any, Any, str]]) -> str:
        if not opened:
            raise OpsError("not examined, for want of servers")
        return interruption.run(question(opened[0], environment))

    return [
        Check("python", check_python),
        Check("data folder", lambda: check_folder(environment.home)),
        Check("disk space", lambda: check_space(environment.home)),
        Check("bundle", lambda: _check_bundle(environment)),
        Check("servers", open_them),
        Check("schema", lambda: ask(_check_schema)),
        Check("service role", lambda: ask(_check_role)),
        Check("root key", lambda: _check_root_key(environment)),
        Check("ports", lambda: _check_ports(environment)),
    ]


def check_python(version: tuple[int, int] = sys.version_info[:2]) -> str:
    """Raises OpsError for a Python that is too old."""
    if version < OLDEST_PYTHON:
        raise OpsError(f"{version[0]}.{version[1]} is too old; install Python 3.11 or newer")
    return f"{version[0]}.{version[1]}"


def check_folder(home: Path) -> str:
    """Raises FolderError when it cannot be used, OpsError when others can look into it."""
    DataFolder(home).prepare()
    mode = home.stat().st_mode & 0o777
    if mode & 0o007:
        raise OpsError(f"{home} is open to others (mode {mode:o}); run `chmod 700 {home}`")
    return str(home)


def check_space(home: Path, needed: int = MIN_FREE_BYTES) -> str:
    """Raises OpsError when the disk is nearly full."""
    free = shutil.disk_usage(home).free
    if free < needed:
        raise OpsError(f"{free // 2**20} MB free at {home}; free at least {needed // 2**20} MB")
    return f"{free // 2**20} MB free"


def _check_bundle(environment: Environment) -> str:
    from worker.sv2tts.bundle import Bundle

    bundle = Bundle.load(bundle_folder(environment))
    return f"{bundle.manifest['name']} version {bundle.manifest['version']}, checksum {bundle.checksum[:12]}"


def bundle_folder(environment: Environment) -> Path:
    """The voice model in service: `TIMBRELAY_BUNDLE`, else the one in the checkout."""
    return Path(environment.variables.get("TIMBRELAY_BUNDLE") or environment.root / "bundles" / "base")


async def _ping(servers: Servers) -> None:
    from storage.database import Database
    from storage.redis import connect, ping

    database, redis = Database(servers.database_url, "", pool_size=1), connect(servers.redis_url, connections=1)
    try:
        await database.ping()
        await ping(redis)
    finally:
        await database.close()
        await redis.aclose()


async def _check_schema(servers: Servers, environment: Environment) -> str:
    from storage.database import Database
    from storage.schema import REVISION, check_revision

    database = Database(servers.database_owner_url, environment.service_role, pool_size=1)
    try:
        await check_revision(database)
    finally:
        await database.close()
    return f"revision {REVISION}"


async def _check_role(servers: Servers, environment: Environment) -> str:
    from storage.database import Database

    database = Database(servers.database_url, environment.service_role, pool_size=1)
    try:
        await database.check_role()
    finally:
        await database.close()
    return f"{environment.service_role} is held to row-level security"


def _check_root_key(environment: Environment) -> str:
    from storage.encryption.providers.choice import open_provider

    given = environment.variables
    file = Path(given.get("TIMBRELAY_ROOT_KEY_FILE") or DataFolder(environment.home).root_key_file)
    elsewhere = given.get("TIMBRELAY_ROOT_KEY") or given.get("TIMBRELAY_KEY_PROVIDER", "local") != "local"
    if not elsewhere and not file.exists():
        return "none yet; the first start makes one"
    return f"its id is {open_provider(read_settings(environment)).root_key_id}"


def _check_ports(environment: Environment) -> str:
    note = DataFolder(environment.home).note()
    if note:
        silent = [name for name, url in note.metrics_urls.items() if not is_ready(url)]
        if silent:
            raise OpsError(f"not ready: {', '.join(silent)}; look into {DataFolder(environment.home).log}")
        return f"a stack runs at {note.relay_url} and is ready"
    if is_free(DEFAULT_PORT):
        return f"{DEFAULT_PORT} is free"
    return f"{DEFAULT_PORT} is in use; another free one is taken, or choose with --port"
