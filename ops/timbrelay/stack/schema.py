"""Brings the database up to date, at no cost when it already is."""

from __future__ import annotations

import hashlib
from pathlib import Path

from timbrelay.environment import Environment
from timbrelay.errors import ServerError
from timbrelay.stack.servers import Servers
from timbrelay.stack.settings import read_settings

_MARK = "timbrelay migrations"


def ensure_schema(servers: Servers, environment: Environment) -> bool:
    """Migrates unless our own database carries the mark of these migrations; says whether it did.

    Loading the migration tool takes longer than starting both servers. A server that was given by URL is always
    migrated: its marks are not ours to make. Raises ServerError.
    """
    mark = f"{_MARK} {_digest(find_migrations(environment.root))}"
    if servers.postgres and _read_mark(servers.database_owner_url) == mark:
        return False
    migrate(servers, environment)
    if servers.postgres:
        _write_mark(servers.database_owner_url, mark)
    return True


def migrate(servers: Servers, environment: Environment, revision: str = "head") -> None:
    """Runs the migrations up, or down to an older revision. Raises ServerError with the reason."""
    from alembic.util import CommandError
    from sqlalchemy.exc import SQLAlchemyError

    from storage.encryption.providers.choice import open_provider
    from storage.errors import StorageError
    from storage.schema import Owner
    from storage.schema import migrate as run_migrations

    settings = read_settings(environment, servers)
    owner = Owner(settings.owner_url, settings.service_role, settings.operator_role, lambda: open_provider(settings))
    try:
        run_migrations(owner, revision)
    except StorageError as error:
        raise ServerError(f"The database could not be migrated: {error}.") from error
    except (SQLAlchemyError, CommandError) as error:
        reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        raise ServerError(f"The database could not be migrated: {reason}. Check DATABASE_OWNER_URL.") from error

    if revision != "head" and (_read_mark(servers.database_owner_url) or "").startswith(_MARK):
        _write_mark(servers.database_owner_url, "")


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
