"""Alembic's way in: one connection as the owner, one transaction for the whole upgrade."""

from __future__ import annotations

from alembic import context
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from storage.tables import metadata

# Any fixed number will do: two services that start at once must not upgrade the same database side by side.
UPGRADE_LOCK = 0x74_69_6D_62


def run() -> None:
    """Upgrade under an advisory lock that ends with the transaction."""
    engine = create_engine(context.config.attributes["url"], poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": UPGRADE_LOCK})
        context.configure(connection=connection, target_metadata=metadata, transactional_ddl=True)
        context.run_migrations()
    engine.dispose()


run()
