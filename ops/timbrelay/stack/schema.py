"""Brings the database up to date, at no cost when it already is."""

from __future__ import annotations

import hashlib
from pathlib import Path

from timbrelay.errors import ServerError
from timbrelay.stack.servers import Servers


def ensure_schema(servers: Servers, migrations: Path, service_role: str) -> bool:
    """Migrates unless our own database carries the mark of these migrations; says whether it did.

    Loading the migration tool takes longer than starting both servers. A server that was given by URL is always
    migrated: its marks are not ours to make. Raises ServerError.
    """
    mark = f"timbrelay migrations {_digest(migrations)}"
    if servers.postgres and _read_mark(servers.database_owner_url) == mark:
        return False
    migrate(servers.database_owner_url, service_role)
    if servers.postgres:
        _write_mark(servers.database_owner_url, mark)
    return True


def migrate(owner_url: str, service_role: str) -> None:
    """Runs the migrations. Raises ServerError with the reason."""
    from alembic.util import CommandError
    from sqlalchemy.exc import SQLAlchemyError

    from storage.schema import migrate as run_migrations

    try:
        run_migrations(owner_url, service_role)
    except (SQLAlchemyError, CommandError) as error:
        reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        raise ServerError(f"The database could not be migrated: {reason}. Check DATABASE_OWNER_URL.") from error


def find_migrations(root: Path) -> Path:
    """Where the migrations lie: in the checkout, or in the installed package."""
    import storage

    installed = Path(storage.__file__).parent / "_migrations"
    return installed if installed.is_dir() else root / "migrations"


def _digest(migrations: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted((migrations / "versions").glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _read_mark(owner_url: str) -> str | None:
    import psycopg

    query = "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = current_database()"
    with psycopg.connect(owner_url, autocommit=True) as connection:
        row = connection.execute(query).fetchone()
    return row[0] if row else None


def _write_mark(owner_url: str, mark: str) -> None:
    import psycopg
    from psycopg import sql

    with psycopg.connect(owner_url, autocommit=True) as connection:
        database = sql.Identifier(connection.info.dbname)
        connection.execute(sql.SQL("COMMENT ON DATABASE {} IS {}").format(database, sql.Literal(mark)))
