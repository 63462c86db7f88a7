"""The tables with tenants' rows, as the database itself names them, and what an intruder may try on them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.database import Database

REFUSED = "42501"
"""SQLSTATE insufficient_privilege: no grant, or a row that the policy does not let in."""
OTHER_REFUSALS = (REFUSED, "0LP01", "42601", "0A000")

SHARED = {"public.alembic_version", "public.speech_log_positions", "keyring.signing_keys"}
"""Tables of the whole service: their rows are nobody's, and hold nothing personal."""

CATALOGUE = text(
    "SELECT n.nspname || '.' || c.relname AS name, c.relrowsecurity AS fenced, c.relforcerowsecurity AS forced,"
    " EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id') AS tenants_own"
    " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE c.relkind IN ('r', 'p') AND n.nspname IN ('public', 'keyring') ORDER BY 1"
)


async def find_tables(owner: Database) -> dict[str, str]:
    """Every table with tenants' rows, and the column that says whose they are."""
    async with owner.transaction() as connection:
        found = (await connection.execute(CATALOGUE)).all()
    tables = {row.name: "tenant_id" for row in found if row.tenants_own} | {"public.tenants": "id"}
    assert {row.name for row in found} == set(tables) | SHARED, "a new table is a tenant's, or is named in SHARED"
    assert len(tables) >= 12
    return tables


async def attempt(connection: AsyncConnection, statement: str, **values: object) -> int:
    """How many rows a statement touched; 0 when it was refused."""
    try:
        async with connection.begin_nested():
            return (await connection.execute(text(statement), values)).rowcount
    except DBAPIError as error:
        assert getattr(error.orig, "sqlstate", None) in OTHER_REFUSALS, error
        return 0


def list_objects(connection: Connection) -> set[tuple[Any, ...]]:
    """Everything in the schema that has a name: tables, columns, indexes, constraints, policies, functions."""
    queries = (
        "SELECT 'column', table_schema, table_name, column_name, data_type, is_nullable, column_default"
        " FROM information_schema.columns WHERE table_schema IN ('public', 'keyring')",
        "SELECT 'index', schemaname, tablename, indexname, indexdef FROM pg_indexes"
        " WHERE schemaname IN ('public', 'keyring')",
        "SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE connamespace::regnamespace::text IN ('public', 'keyring')",
        "SELECT 'policy', schemaname, tablename, policyname, roles::text, cmd, qual FROM pg_policies",
        "SELECT 'grant', table_schema, table_name, grantee, privilege_type FROM information_schema.role_table_grants"
        " WHERE grantee LIKE 'timbrelay%' AND table_schema IN ('public', 'keyring')",
        "SELECT 'force', relname, relrowsecurity, relforcerowsecurity FROM pg_class"
        " WHERE relnamespace::regnamespace::text IN ('public', 'keyring') AND relkind = 'r'",
        "SELECT 'function', proname FROM pg_proc WHERE pronamespace::regnamespace::text IN ('public', 'keyring')",
        "SELECT 'trigger', tgname, tgrelid::regclass::text FROM pg_trigger WHERE NOT tgisinternal",
        "SELECT 'schema', nspname FROM pg_namespace WHERE nspname = 'keyring'",
    )
    return {tuple(row) for query in queries for row in connection.execute(text(query))}
