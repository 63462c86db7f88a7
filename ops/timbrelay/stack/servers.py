"""The servers that everything stands on: those given by URL, or our own under the supervisor."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from timbrelay.environment import Environment
from timbrelay.stack.binaries import find_valkey
from timbrelay.stack.folder import DataFolder
from timbrelay.stack.orphans import end_orphans
from timbrelay.stack.postgres import Postgres, fresh_folder
from timbrelay.stack.process import Process
from timbrelay.stack.supervisor import Supervisor, Tier
from timbrelay.stack.valkey import Valkey


@dataclass(frozen=True, slots=True)
class Servers:
    """Where Postgres and Valkey answer."""

    database_url: str
    database_owner_url: str
    redis_url: str
    postgres: Postgres | None
    """Our own, None when it was given by URL."""

    valkey: Process | None
    """Our own, None when it was given by URL."""


@contextlib.contextmanager
def run_servers(
    environment: Environment, folder: DataFolder, supervisor: Supervisor, *, durable: bool = True
) -> Iterator[Servers]:
    """Starts what was not given by URL, and stops the supervisor at the end; the caller holds the folder's lock.

    Raises FolderError or ServerError, with the server's own words.
    """
    try:
        runtime = folder.make_runtime(environment.runtime_base)
        # Valkey is ready long before Postgres: it starts first and is waited for last.
        valkey = None if environment.redis_url else _valkey(environment, folder, runtime, durable)
        started = _start_valkey(valkey, supervisor) if valkey else None
        postgres = None if environment.database_url else _postgres(environment, folder, runtime, durable)
        if postgres:
            _start_postgres(postgres, supervisor)
        if valkey and started:
            valkey.wait_ready(started)
        yield Servers(
            database_url=postgres.service_url if postgres else environment.database_url,
            database_owner_url=postgres.owner_url if postgres else environment.database_owner_url,
            redis_url=valkey.url if valkey else environment.redis_url,
            postgres=postgres,
            valkey=started,
        )
    finally:
        supervisor.stop()
        folder.remove_runtime()


def _valkey(environment: Environment, folder: DataFolder, runtime: Path, durable: bool) -> Valkey:
    end_orphans(folder.valkey)
    return Valkey(
        find_valkey(environment.variables.get("PATH")), folder.valkey, runtime, environment.variables, durable
    )


def _start_valkey(valkey: Valkey, supervisor: Supervisor) -> Process:
    valkey.prepare()
    return supervisor.start(valkey.command(), Tier.SERVERS)


def _postgres(environment: Environment, folder: DataFolder, runtime: Path, durable: bool) -> Postgres:
    end_orphans(fresh_folder(folder.postgres))
    if end_orphans(folder.postgres):
        # Left by a crash, its process id may be another program's by now, and Postgres would refuse to start.
        (folder.postgres / "postmaster.pid").unlink(missing_ok=True)
    return Postgres.find(folder.postgres, runtime, environment.variables, durable=durable)


def _start_postgres(postgres: Postgres, supervisor: Supervisor) -> None:
    postgres.prepare(supervisor.log)
    postgres.wait_ready(supervisor.start(postgres.command(), Tier.SERVERS))
