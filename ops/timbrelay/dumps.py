"""Dumps of a database's rows, by Postgres' own programs: what it holds, and, apart from it, what opens that.

A dump is in the custom format of `pg_dump` and holds rows alone; their tables are made by the migrations. It is one
snapshot, and streamed. Of the two kinds, `data` holds everything but the schema `keyring`, and `keyring` just that.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from timbrelay.errors import OpsError, ServerError, UsageFault
from timbrelay.stack.binaries import DumpPrograms, find_dump_programs
from timbrelay.stack.postgres import without_libpq

KEYRING = "keyring"
_REVISIONS = "alembic_version"
_REASON_CHARACTERS = 500


class Kind(StrEnum):
    """What a dump holds."""

    DATA = "data"
    KEYRING = "keyring"


_SELECTIONS = {
    Kind.DATA: (f"--exclude-schema={KEYRING}",),
    Kind.KEYRING: (f"--table={KEYRING}.*", f"--table=public.{_REVISIONS}"),
}


@dataclass(frozen=True, slots=True)
class Dump:
    """A dump that was found readable."""

    file: Path
    kind: Kind
    revision: str
    """The schema's revision that its rows are for."""


@dataclass(frozen=True, slots=True)
class Dumper:
    """Dumps from and loads into one database, as its owner."""

    programs: DumpPrograms
    target: str
    """Where the programs connect to, without the password: arguments can be seen by everybody on the machine."""
    owner_url: str = field(repr=False)
    variables: dict[str, str] = field(repr=False)
    """The environment of the programs, with the password."""

    @classmethod
    def find(cls, owner_url: str, environment: dict[str, str]) -> Dumper:
        """Raises ServerError when the server cannot be reached, the owner may not see all rows, or programs lack."""
        try:
            with psycopg.connect(owner_url, autocommit=True, connect_timeout=10) as connection:
                _check_role(connection)
                major = connection.info.server_version // 10_000
        except psycopg.OperationalError as error:
            raise ServerError(f"Postgres does not answer: {str(error).strip().splitlines()[0]}.") from error
        parts = {name: str(value) for name, value in conninfo_to_dict(owner_url).items()}
        password = {"PGPASSWORD": parts.pop("password")} if "password" in parts else {}
        programs = find_dump_programs(environment.get("PATH"), major)
        return cls(programs, make_conninfo(**parts), owner_url, without_libpq(environment) | password)

    def write(self, kind: Kind, file: Path) -> None:
        """Dump into a new file, readable for its owner alone; raises UsageFault or OpsError, and then there is none."""
        if file.exists():
            raise UsageFault(f"{file} is there already; name a new file.")
        with _partial(file) as partial:
            options = ("--format=custom", "--data-only", "--no-password", *_SELECTIONS[kind])
            self._run(self.programs.dump, *options, f"--file={partial}", f"--dbname={self.target}")
            with partial.open("rb") as written:
                os.fsync(written.fileno())
            partial.rename(file)

    def inspect(self, file: Path) -> Dump:
        """What a dump is; raises UsageFault when it is none of ours."""
        if not file.is_file():
            raise UsageFault(f"{file} is not there.")
        listed = self._list(file)
        tables = [line for line in listed if " TABLE DATA " in line]
        of_keyring = [line for line in tables if f" TABLE DATA {KEYRING} " in line]
        if not any(f" {_REVISIONS} " in line for line in tables):
            raise UsageFault(f"{file} is no backup of `timbrelay backup`.")
        kind = Kind.KEYRING if of_keyring else Kind.DATA
        return Dump(file, kind, self._read_revision(file))

    def load(self, dump: Dump) -> None:
        """Load every row, or none; raises OpsError with the reason."""
        wanted = [line for line in self._list(dump.file) if f" {_REVISIONS} " not in line]
        with tempfile.NamedTemporaryFile("w", suffix=".list") as listed:
            listed.write("\n".join(wanted))
            listed.flush()
            options = ("--data-only", "--single-transaction", "--no-password", f"--use-list={listed.name}")
            self._run(self.programs.restore, *options, f"--dbname={self.target}", str(dump.file))

    def find_filled(self, kind: Kind) -> str:
        """The first table of a kind that has rows, as a dump of that kind would fill it; empty when all are empty."""
        query = (
            "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'"
            " AND table_schema IN ('public', %(keyring)s) AND table_name <> %(revisions)s ORDER BY 1, 2"
        )
        with psycopg.connect(self.owner_url, autocommit=True) as connection:
            for schema, table in connection.execute(query, {"keyring": KEYRING, "revisions": _REVISIONS}).fetchall():
                if (schema == KEYRING) == (kind is Kind.KEYRING):
                    named = sql.SQL("SELECT EXISTS (SELECT FROM {})").format(sql.Identifier(schema, table))
                    row = connection.execute(named).fetchone()
                    if row and row[0]:
                        return f"{schema}.{table}"
        return ""

    def count(self, table: str) -> int:
        """How many rows a table of the schema `public` has."""
        with psycopg.connect(self.owner_url, autocommit=True) as connection:
            row = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table))).fetchone()
        return int(row[0]) if row else 0

    def _list(self, file: Path) -> list[str]:
        try:
            return self._run(self.programs.restore, "--list", str(file)).splitlines()
        except OpsError as error:
            raise UsageFault(f"{file} is no backup of `timbrelay backup`, or it is damaged: {error}") from error

    def _read_revision(self, file: Path) -> str:
        lines = self._run(self.programs.restore, "--data-only", f"--table={_REVISIONS}", "--file=-", str(file))
        found = lines.splitlines()
        begin = next((number for number, line in enumerate(found) if line.startswith("COPY ")), -1)
        if begin < 0 or len(found) <= begin + 1 or not found[begin + 1].isalnum():
            raise UsageFault(f"{file} does not say which release made it.")
        return found[begin + 1]

    def _run(self, program: Path, *arguments: str) -> str:
        """What the program printed; raises OpsError with what it complained of."""
        command = [str(program), *arguments]
        result = subprocess.run(command, env=self.variables, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise OpsError(f"`{program.name}` failed: {result.stderr.strip()[:_REASON_CHARACTERS]}")
        return result.stdout


def _check_role(connection: psycopg.Connection) -> None:
    query = "SELECT current_user, rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"
    row = connection.execute(query).fetchone()
    if row and not row[1]:
        raise ServerError(
            f"The role {row[0]} sees no tenant's rows, so it cannot back them up or bring them back. Use a login with "
            f"BYPASSRLS for this (`ALTER ROLE ... BYPASSRLS`), through DATABASE_OWNER_URL; no service needs one."
        )


@contextmanager
def _partial(file: Path) -> Iterator[Path]:
    """A file beside the wanted one, that is gone if it does not take its place."""
    partial = file.with_name(f".{file.name}.partial")
    try:
        with suppress(FileNotFoundError):
            partial.unlink()
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        yield partial
    except OSError as error:
        raise UsageFault(f"{file} cannot be written: {error.strerror}.") from error
    finally:
        with suppress(FileNotFoundError):
            partial.unlink()
