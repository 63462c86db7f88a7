"""storage.schema and storage.tables, against what the migrations make."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from storage.errors import SchemaMismatch
from storage.schema import REVISION, check_revision
from storage.settings import Settings
from storage.tables import KEYRING, metadata
from tests.storage.catalogue import list_objects
from tests.storage.conftest import Migrate, as_owner, served

MIGRATIONS = Path(__file__).resolve().parents[2] / "migrations"


def test_the_revision_of_the_code_is_the_newest_migration() -> None:
    """Whoever adds a migration raises REVISION with it; services compare it without loading Alembic."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_heads() == [REVISION]


def test_the_code_knows_the_tables_as_the_migrations_make_them(settings: Settings) -> None:
    """Every table, column, type, default and nullability; constraints and indexes are the migrations' alone."""

    def is_ours(_: object, name: str | None, kind: str, reflected: bool, __: object) -> bool:
        return kind in ("table", "column") and name != "alembic_version"

    options = {"include_schemas": True, "include_object": is_ours, "compare_server_default": True, "compare_type": True}
    with as_owner(settings) as connection:
        connection.execute(text("SET search_path TO public"))
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, metadata) == []
        known = {row[1] for row in list_objects(connection) if row[0] == "column"}
    assert known == {"public", KEYRING}


async def test_an_old_schema_is_refused_with_the_fix(empty: Settings, go: Migrate) -> None:
    """A service on a database of another revision, or of none, says which it needs and how to get there."""
    async with served(empty) as (database, _):
        with pytest.raises(SchemaMismatch, match="none"):
            await check_revision(database)
        go("0003")
        with pytest.raises(SchemaMismatch, match="timbrelay migrate") as caught:
            await check_revision(database)
        assert (caught.value.found, caught.value.expected) == ("0003", REVISION)
        go("head")
        await check_revision(database)
