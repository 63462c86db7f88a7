"""The fences between tenants: whatever a transaction asks, it meets its own tenant's rows.

The tables are found in the catalogue, so that one which a later migration adds is tried as well. What holds:

- A query that forgets its tenant, through the ORM or in SQL, finds the rows of its transaction's tenant; without one,
  none. So it is with writing, locking, joining, copying, and with views and functions that a transaction makes itself.
- No transaction gets from the service's role to the owner's, switches the policies off, or changes the schema, if the
  service has a login of its own which is a member of no role but the operator's. The local stack's is such a login:
  `RESET ROLE` leads back to the service's role. With one login for everything (no DATABASE_OWNER_URL) it leads to the
  owner, and what is tried here with `RESET ROLE` would not hold.

What no policy can hold: SQL of an attacker's own may set `app.tenant` itself, or become the operator, who sees tenants
and keys (of keys only their hashes) and could make one. Against that stand that no statement of ours is put together
from what a client says, and that everything personal is sealed: rows of another tenant do not open without the root
key, which is not in the database.
"""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

import pytest
from psycopg import AsyncConnection as Driver
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.database import Database
from tests.storage.catalogue import CATALOGUE, REFUSED, SHARED, attempt, find_tables
from tests.storage.conftest import FillTenant


async def copy_out(connection: AsyncConnection, statement: str) -> bytes:
    """What `COPY ... TO STDOUT` gives; nothing when it is refused."""
    driver: Driver[Any] = (await connection.get_raw_connection()).driver_connection  # type: ignore[assignment]
    async with driver.cursor() as cursor, cursor.copy(statement) as copy:
        return b"".join([bytes(part) async for part in copy])


async def test_every_table_is_fenced_and_all_but_two_from_their_owner_as_well(owner: Database) -> None:
    """Tenants and keys are open to the owner, who is the operator; every policy covers writing like reading."""
    tables = await find_tables(owner)
    async with owner.transaction() as connection:
        state = {row.name: (row.fenced, row.forced) for row in await connection.execute(CATALOGUE)}
        policies = text(
            "SELECT schemaname || '.' || tablename AS name, qual, with_check FROM pg_policies"
            " WHERE policyname = 'own_rows' AND cmd = 'ALL' AND permissive = 'PERMISSIVE'"
        )
        own = {row.name: row for row in await connection.execute(policies)}
    for table, column in tables.items():
        assert state[table] == (True, table not in ("public.tenants", "public.api_keys")), table
        assert column in own[table].qual, table
        assert own[table].with_check is None, f"{table}: without one of its own, writing follows the same rule"


async def test_nothing_leads_around_the_policies(owner: Database) -> None:
    """No function runs as its owner, and there is no view, whose rows would be its owner's, nor a rule."""
    query = text(
        "SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace"
        " WHERE n.nspname IN ('public', 'keyring') AND p.prosecdef UNION ALL"
        " SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname IN ('public', 'keyring') AND c.relkind IN ('v', 'm', 'f') UNION ALL"
        " SELECT r.rulename FROM pg_rules r WHERE r.schemaname IN ('public', 'keyring')"
    )
    async with owner.transaction() as connection:
        assert (await connection.execute(query)).all() == []


async def test_reading_finds_own_rows_only(
    database: Database, tables: dict[str, str], victim: UUID, intruder: UUID | None
) -> None:
    """By a plain select, a select for the other's rows, a join, a subquery, `TABLE` and `COPY`."""
    async with database.transaction(tenant=intruder) as connection:
        for table, column in tables.items():
            for query in (
                f"SELECT {column} FROM {table}",  # noqa: S608
                f"SELECT {column} FROM {table} WHERE {column} = '{victim}'",  # noqa: S608
                f"SELECT a.{column} FROM {table} a FULL JOIN {table} b ON true WHERE a.{column} IS NOT NULL",  # noqa: S608
                f"SELECT {column} FROM (TABLE {table}) everything",  # noqa: S608
                f"WITH w AS MATERIALIZED (SELECT * FROM {table}) SELECT {column} FROM w",  # noqa: S608
            ):
                seen = set((await connection.execute(text(query))).scalars())
                assert seen == ({intruder} if intruder and "WHERE " + column + " =" not in query else set()), query
            for copied in (f"COPY {table} TO STDOUT", f"COPY (TABLE {table}) TO STDOUT"):
                assert str(victim).encode() not in await copy_out(connection, copied), copied


async def test_writing_touches_own_rows_only(
    database: Database, owner: Database, tables: dict[str, str], victim: UUID, intruder: UUID | None
) -> None:
    """Another's rows are not updated, deleted, locked, added to, and none of one's own is given to another."""
    async with database.transaction(tenant=intruder) as connection:
        for table, column in tables.items():
            rest = f"{table} WHERE {column} = :victim"
            for statement in (
                f"UPDATE {table} SET {column} = {column} WHERE {column} = :victim",  # noqa: S608
                f"UPDATE {table} SET {column} = :victim",  # noqa: S608
                f"DELETE FROM {rest}",  # noqa: S608
                f"SELECT 1 FROM {rest} FOR UPDATE",  # noqa: S608
                f"SELECT 1 FROM {rest} FOR KEY SHARE",  # noqa: S608
                f"MERGE INTO {table} t USING (SELECT 1) s ON t.{column} = :victim WHEN MATCHED THEN DELETE",
            ):
                assert await attempt(connection, statement, victim=victim) == 0, statement
            assert await attempt(connection, f"TRUNCATE {table} CASCADE") == 0
    await _insert_for_the_victim(database, owner, tables, victim, intruder)


async def _insert_for_the_victim(
    database: Database, owner: Database, tables: dict[str, str], victim: UUID, intruder: UUID | None
) -> None:
    for table, column in tables.items():
        query = text(f"SELECT to_jsonb(t) FROM {table} t WHERE {column} = :victim LIMIT 1")  # noqa: S608
        async with owner.transaction() as connection:
            row = (await connection.execute(query, {"victim": victim})).scalar()
        filled = f"INSERT INTO {table} SELECT * FROM jsonb_populate_record(NULL::{table}, cast(:row AS jsonb))"  # noqa: S608
        async with database.transaction(tenant=intruder) as connection:
            for statement in (filled, filled + " ON CONFLICT DO NOTHING"):
                with pytest.raises(DBAPIError) as refused:
                    async with connection.begin_nested():
                        await connection.execute(text(statement), {"row": json.dumps(row)})
                assert getattr(refused.value.orig, "sqlstate", None) == REFUSED, statement


async def test_views_and_functions_of_a_transactions_own_are_no_way_round(
    database: Database, victim: UUID, intruder: UUID | None
) -> None:
    """A temporary view, a function that runs as its maker, and one that tells of every row it is shown."""
    async with database.transaction(tenant=intruder) as connection:
        await connection.execute(text("CREATE TEMPORARY VIEW everything AS SELECT tenant_id FROM voices"))
        await connection.execute(
            text(
                "CREATE FUNCTION pg_temp.all_voices() RETURNS SETOF uuid LANGUAGE sql SECURITY DEFINER AS"
                " $$ SELECT tenant_id FROM voices $$"
            )
        )
        await connection.execute(
            text(
                "CREATE FUNCTION pg_temp.tell(name text, whose uuid) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS"
                f" $$ BEGIN IF whose = '{victim}' THEN RAISE EXCEPTION 'told: %', name; END IF; RETURN true; END $$"
            )
        )
        for query in (
            "SELECT tenant_id FROM everything",
            "SELECT pg_temp.all_voices()",
            "SELECT tenant_id FROM voices WHERE pg_temp.tell(name, tenant_id)",
        ):
            assert set((await connection.execute(text(query))).scalars()) <= {intruder}, query


async def test_statistics_do_not_tell_what_the_rows_hold(database: Database, owner: Database, intruder: UUID) -> None:
    """The planner's samples of a fenced table are hidden from whom the fence applies to."""
    async with owner.transaction() as connection:
        await connection.execute(text("ANALYZE"))
    query = text(
        "SELECT tablename FROM pg_stats WHERE schemaname IN ('public', 'keyring') AND tablename <> ALL (:open)"
    )
    names = {"open": [name.split(".")[1] for name in SHARED]}
    async with database.transaction(tenant=intruder) as connection:
        assert (await connection.execute(query, names)).all() == []


@pytest.mark.parametrize("reference", ["voices.consent_id", "voice_versions.consent_id", "voice_aliases.voice_id"])
async def test_a_foreign_key_tells_nothing_of_another_tenants_ids(
    database: Database, owner: Database, victim: UUID, reference: str, fill_tenant: FillTenant
) -> None:
    """A reference to another tenant's row fails as one to no row: checks of foreign keys see through every policy.

    (A primary key does tell that an id is taken, to whoever knows those 122 random bits already.)
    """
    intruder = await fill_tenant("intruder")
    table, column = reference.split(".")
    async with owner.transaction() as connection:
        query = text(f"SELECT {column} FROM {table} WHERE tenant_id = :victim LIMIT 1")  # noqa: S608
        theirs = (await connection.execute(query, {"victim": victim})).scalar()
    told = []
    for wanted in (theirs, uuid4()):
        with pytest.raises(DBAPIError) as refused:
            async with database.transaction(tenant=intruder) as connection:
                await connection.execute(text(f"UPDATE {table} SET {column} = :wanted"), {"wanted": wanted})  # noqa: S608
        cause = refused.value.orig
        told.append((getattr(cause, "sqlstate", None), str(cause).replace(str(wanted), "ID")))
    assert told[0] == told[1]
    assert told[0][0] == "23503"
