"""The schema's revision: bring a database up to date, or refuse one that is not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import make_url, text
from sqlalchemy.exc import ProgrammingError

from storage.database import Database
from storage.errors import SchemaMismatch

if TYPE_CHECKING:
    from alembic.config import Config

REVISION = "0001"
"""The revision that this code was written for: the newest in the migrations folder."""

_HERE = Path(__file__).resolve().parent


def migrate(owner_url: str, service_role: str) -> None:
    """Upgrade the database to this code's revision, as the owner of its tables."""
    from alembic import command

    config = _config()
    config.attributes["url"] = make_url(owner_url).set(drivername="postgresql+psycopg")
    config.attributes["service_role"] = service_role
    command.upgrade(config, "head")


async def check_revision(database: Database) -> None:
    """Raises SchemaMismatch unless the database is at this code's revision."""
    try:
        async with database.transaction() as connection:
            found = (await connection.execute(text("SELECT version_num FROM alembic_version"))).scalar()
    except ProgrammingError as error:
        raise SchemaMismatch(None, REVISION) from error
    if found != REVISION:
        raise SchemaMismatch(found, REVISION)


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_migrations()))
    return config


def _migrations() -> Path:
    installed = _HERE / "_migrations"
    return installed if installed.is_dir() else _HERE.parent / "migrations"
