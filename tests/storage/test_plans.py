"""storage.database: how Postgres plans what it is asked."""

from __future__ import annotations

from uuid import uuid4

from sqlalchemy import text

from storage.database import Database
from storage.paging import Page
from storage.voices.voices import list_voices


async def test_a_query_that_is_repeated_is_planned_for_its_own_values(database: Database) -> None:
    """Not once for any tenant and any limit, which for the first page of a large tenant is to read all of it."""
    tenant = uuid4()
    async with database.transaction(tenant=tenant) as connection:
        # The driver prepares what it has seen five times, and Postgres plans a prepared query anew five times more.
        for _ in range(15):
            await list_voices(connection, tenant, Page(10))
        counts = text("SELECT sum(generic_plans), sum(custom_plans) FROM pg_prepared_statements")
        generic, custom = (await connection.execute(counts)).one()
    assert custom > 5
    assert generic == 0
