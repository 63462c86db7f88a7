"""storage.schema."""

from __future__ import annotations

from pathlib import Path

from alembic.config import Config
from alembic.script import ScriptDirectory

from storage.schema import REVISION

MIGRATIONS = Path(__file__).resolve().parents[2] / "migrations"


def test_the_revision_of_the_code_is_the_newest_migration() -> None:
    """Whoever adds a migration raises REVISION with it; services compare it without loading Alembic."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_heads() == [REVISION]
