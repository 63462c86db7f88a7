"""The schema's revision: bring a database up to date, or refuse one that is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import URL, create_engine, make_url, text
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.pool import NullPool

from storage.database import Database
from storage.encryption.nesting import flatten_keys, nest_keys
from storage.encryption.providers import KeyProvider
from storage.errors import SchemaMismatch

if TYPE_CHECKING:
    from alembic.config import Config

REVISION = "0004"
"""The revision that this code was written for: the newest in the migrations folder."""

_HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Owner:
    """Who migrates, and for whom."""

    url: str
    """The login that owns the tables."""
    service_role: str
    operator_role: str
    open_keys: Callable[[], KeyProvider]
    """Opens the root key's provider, if there are keys to wrap anew; raises RootKeyError."""


def migrate(owner: Owner, revision: str = "head") -> None:
    """Bring the database up to a revision, or back down to one (`base`: to nothing), in one transaction.

    Raises SQLAlchemyError, alembic's CommandError, or RootKeyError; the database is then as it was.
    """
    from alembic import command

    config = _config()
    config.attributes["url"] = make_url(owner.url).set(drivername="postgresql+psycopg")
    config.attributes["service_role"] = owner.service_role
    config.attributes["operator_role"] = owner.operator_role
    config.attributes["nest_keys"] = partial(nest_keys, open_keys=owner.open_keys)
    config.attributes["flatten_keys"] = partial(flatten_keys, open_keys=owner.open_keys)
    (command.downgrade if _is_back(config.attributes["url"], revision) else command.upgrade)(config, revision)


async def check_revision(database: Database) -> None:
    """Raises SchemaMismatch unless the database is at this code's revision."""
    try:
        async with database.transaction() as connection:
            found = (await connection.execute(text("SELECT version_num FROM alembic_version"))).scalar()
    except ProgrammingError as error:
        raise SchemaMismatch(None, REVISION) from error
    if found != REVISION:
        raise SchemaMismatch(found, REVISION)


def _is_back(url: URL, revision: str) -> bool:
    """Whether the way to a revision leads down: revisions are numbers, and `base` is before the first."""
    from alembic.migration import MigrationContext

    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        current = MigrationContext.configure(connection).get_current_revision()
    return current is not None and revision != "head" and (revision == "base" or revision < current)


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_migrations()))
    return config


def _migrations() -> Path:
    installed = _HERE / "_migrations"
    return installed if installed.is_dir() else _HERE.parent / "migrations"
