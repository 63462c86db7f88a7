"""Our own Postgres: a data folder made once, a server on a unix socket, two roles."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from timbrelay.errors import FolderError, ServerError
from timbrelay.stack.binaries import PostgresPrograms, find_postgres
from timbrelay.stack.log import tail
from timbrelay.stack.process import Command, Identity, Process, choose_identity, run_to_end
from timbrelay.stack.shim import NOBODY

if TYPE_CHECKING:
    import psycopg

DATABASE = "timbrelay"
OWNER = "timbrelay_owner"
SERVICE = "timbrelay_service"
_PORT = 5432
"""Names the socket; nothing listens on it."""

_INITDB_TIMEOUT_S = 120.0
_START_TIMEOUT_S = 60.0

_OPTIONS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "shared_buffers": "32MB",
    "max_connections": "60",
    "log_min_messages": "warning",
    # A failed statement could carry what a client sent.
    "log_min_error_statement": "panic",
    "log_line_prefix": "postgres %m ",
}
_VOLATILE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@dataclass(frozen=True, slots=True)
class Postgres:
    """One server: its programs, its files and as whom it runs."""

    programs: PostgresPrograms
    identity: Identity
    folder: Path
    runtime: Path
    environment: Mapping[str, str]
    durable: bool = True
    """False only in tests: data does not survive a crash of the machine."""

    @classmethod
    def find(cls, folder: Path, runtime: Path, environment: Mapping[str, str], *, durable: bool = True) -> Postgres:
        """Takes programs that fit the data. Raises FolderError or ServerError when there are none."""
        programs = _find_fitting(folder, environment.get("PATH"))
        identity = choose_identity(programs.postgres)
        return cls(programs, identity, folder, runtime, without_libpq(environment), durable)

    @property
    def owner_url(self) -> str:
        return self.url(OWNER)

    @property
    def service_url(self) -> str:
        return self.url(SERVICE)

    def url(self, user: str, database: str = DATABASE) -> str:
        """A connection URL for this server's socket."""
        return f"postgresql://{user}@/{database}?host={self.runtime}&port={_PORT}"

    def prepare(self, log: Path) -> None:
        """Makes the data folder when there is none; one that was interrupted is made anew."""
        self._hand_over(self.runtime)
        if self.identity is Identity.NOBODY:
            os.chown(self.folder.parent, -1, NOBODY)
            self.folder.parent.chmod(0o710)
        if self.folder.exists():
            self._hand_over(self.folder)
        else:
            self._initialise(log)

    def command(self) -> Command:
        """How the server is run; SIGINT is its fast, clean shutdown."""
        options = _OPTIONS | ({} if self.durable else _VOLATILE)
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        arguments = (
            *(str(self.programs.postgres), "-D", str(self.folder), "-k", str(self.runtime), "-p", str(_PORT)),
            *settings,
        )
        return Command(
            *("postgres", arguments, self.folder, self.environment, self.identity),
            stop_signal=signal.SIGINT,
            death_signal=signal.SIGINT,
        )

    def wait_ready(self, process: Process) -> None:
        """Returns when the database answers and has both roles. Raises ServerError when it ends or is too slow."""
        import psycopg

        end = time.monotonic() + _START_TIMEOUT_S
        while True:
            try:
                with psycopg.connect(self.url(OWNER, "postgres"), autocommit=True, connect_timeout=10) as connection:
                    return _ensure_roles(connection)
            except psycopg.OperationalError as error:
                if process.exit_code is not None or time.monotonic() > end:
                    raise ServerError(f"Postgres did not start:\n{tail(process.log)}") from error
            time.sleep(0.01)

    def _initialise(self, log: Path) -> None:
        fresh = fresh_folder(self.folder)
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        self._hand_over(fresh)
        arguments = (
            *(str(self.programs.initdb), "-D", str(fresh), "-U", OWNER, "-A", "trust"),
            *("--no-sync", "--no-instructions", "--locale=C.UTF-8", "-E", "UTF8"),
        )
        command = Command("initdb", arguments, fresh, self.environment, self.identity)
        if run_to_end(command, log, _INITDB_TIMEOUT_S) != 0:
            raise ServerError(f"The database could not be made.{self._hint()}\n{tail(log)}")
        fresh.rename(self.folder)

    def _hint(self) -> str:
        if self.identity is not Identity.NOBODY:
            return ""
        return " It runs as the user nobody here: set TIMBRELAY_HOME to a folder which that user may enter."

    def _hand_over(self, folder: Path) -> None:
        """Gives files to the user that the server runs as: another kind of start may have left them to another."""
        if os.geteuid() != 0:
            return
        owner = NOBODY if self.identity is Identity.NOBODY else 0
        if folder.stat().st_uid == owner:
            return
        for path in (folder, *folder.rglob("*")):
            os.chown(path, owner, owner, follow_symlinks=False)


def without_libpq(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables without those that would lead a client or a server of Postgres to another database."""
    return {name: value for name, value in environment.items() if not name.startswith("PG")}


def fresh_folder(folder: Path) -> Path:
    """Where a data folder is made before it gets its name: what has the name is whole."""
    return folder.with_name(folder.name + ".new")


def _find_fitting(folder: Path, search_path: str | None) -> PostgresPrograms:
    version = folder / "PG_VERSION"
    if not version.exists():
        return find_postgres(search_path)
    made_by = version.read_text().strip()
    try:
        return find_postgres(search_path, int(made_by))
    except (ServerError, ValueError) as error:
        raise FolderError(
            folder,
            f"was made by Postgres {made_by}, and its programs were not found",
            f"Put those of Postgres {made_by} on the PATH, or set TIMBRELAY_HOME to another folder to begin anew.",
        ) from error


def _ensure_roles(connection: psycopg.Connection) -> None:
    roles = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [SERVICE]).fetchone()
    if not roles:
        connection.execute(f"CREATE ROLE {SERVICE} LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE NOREPLICATION")
    databases = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone()
    if not databases:
        connection.execute(f"CREATE DATABASE {DATABASE}")
