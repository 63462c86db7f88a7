"""What each role may, and what it cannot become; test_fences.py says what this does not hold."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.exc import DBAPIError

from storage.database import Database
from storage.errors import UnsafeRole
from tests.storage.catalogue import REFUSED, attempt


@pytest.mark.parametrize(
    "statement",
    [
        "SET LOCAL ROLE timbrelay_owner",
        "SET LOCAL SESSION AUTHORIZATION timbrelay_owner",
        "ALTER TABLE voices DISABLE ROW LEVEL SECURITY",
        "ALTER TABLE voices NO FORCE ROW LEVEL SECURITY",
        "DROP POLICY own_rows ON voices",
        "CREATE POLICY mine ON voices USING (true)",
        "ALTER ROLE timbrelay_service BYPASSRLS",
        "GRANT timbrelay_owner TO timbrelay_service",
        "CREATE TABLE public.mine (id int)",
        "CREATE FUNCTION keyring.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "COPY voices TO PROGRAM 'cat'",
        "COPY voices TO '/tmp/voices'",
        "SELECT pg_read_file('PG_VERSION')",
        "SELECT lo_import('/etc/hostname')",
        "CREATE EXTENSION dblink",
        "DROP TRIGGER append_only ON audit_log",
        "UPDATE audit_log SET actor = 'nobody'",
        "DELETE FROM deletions",
        "UPDATE tenants SET limits = '{}'",
        "DELETE FROM api_keys",
    ],
)
async def test_the_services_role_gets_no_further(database: Database, victim: UUID, statement: str) -> None:
    """It becomes nobody who sees more, and changes no schema, policy, record or limit, not even its own."""
    with pytest.raises(DBAPIError) as refused:
        async with database.transaction(tenant=victim) as connection:
            await connection.execute(text(statement))
    assert getattr(refused.value.orig, "sqlstate", None) == REFUSED, refused.value


async def test_switching_the_policies_off_is_an_error_and_no_way_in(
    database: Database, tables: dict[str, str], intruder: UUID | None
) -> None:
    """`row_security = off` asks to be told when rows would be withheld, and so it is."""
    for table in tables:
        with pytest.raises(DBAPIError, match=r"row-level security|row security"):
            async with database.transaction(tenant=intruder) as connection:
                await connection.execute(text("SET LOCAL row_security = off"))
                await connection.execute(text(f"SELECT 1 FROM {table}"))  # noqa: S608


async def test_leaving_the_role_leads_to_a_login_that_sees_no_more(
    database: Database, tables: dict[str, str], victim: UUID, intruder: UUID | None
) -> None:
    """The local stack's services have a login of their own: `RESET ROLE` comes back to it."""
    async with database.transaction(tenant=intruder) as connection:
        await connection.execute(text("RESET ROLE"))
        for table, column in tables.items():
            seen = set((await connection.execute(text(f"SELECT {column} FROM {table}"))).scalars())  # noqa: S608
            assert victim not in seen, table


async def test_the_operator_sees_tenants_and_keys_and_nobodys_voice(
    database: Database, tables: dict[str, str], victim: UUID
) -> None:
    """Neither voices, consents, what was recorded, nor any key that opens it; of records only a named tenant's."""
    open_tables = {"public.tenants", "public.api_keys"}
    records = {"public.audit_log", "public.audit_checkpoints", "public.deletions"}
    async with database.transaction(operator=True) as connection:
        for table, column in {**tables, "keyring.signing_keys": "id"}.items():
            query = f"SELECT {column} FROM {table}"  # noqa: S608
            if table in open_tables:
                assert victim in (await connection.execute(text(query))).scalars().all(), table
            elif table in records:
                assert (await connection.execute(text(query))).all() == [], table
            else:
                with pytest.raises(DBAPIError) as refused:
                    async with connection.begin_nested():
                        await connection.execute(text(query))
                assert getattr(refused.value.orig, "sqlstate", None) == REFUSED, table


async def test_the_service_is_not_the_operator_unasked(database: Database, victim: UUID, intruder: UUID | None) -> None:
    """It may become the operator and does not inherit what the operator sees."""
    async with database.transaction(tenant=intruder) as connection:
        inherited = text("SELECT pg_has_role(current_user, 'timbrelay_operator', 'USAGE')")
        assert (await connection.execute(inherited)).scalar() is False
        assert victim not in (await connection.execute(text("SELECT id FROM tenants"))).scalars().all()
    await database.check_role()


async def test_a_transaction_ends_with_its_tenant_and_its_role(database: Database, victim: UUID) -> None:
    """A connection that goes back to the pool carries neither on; a failed transaction does not either."""
    state = text("SELECT current_setting('app.tenant', true), current_setting('app.key_hash', true)")
    async with database.transaction(tenant=victim, key_hash=b"h"):
        pass
    with pytest.raises(ZeroDivisionError):
        async with database.transaction(tenant=victim, operator=True):
            raise ZeroDivisionError
    for _ in range(5):
        async with database._engine.connect() as connection:
            assert set((await connection.execute(state)).one()) <= {"", None}
            assert (await connection.execute(select(func.current_user()))).scalar() == "timbrelay_service"


async def test_a_key_is_found_by_its_hash_alone(database: Database, victim: UUID, intruder: UUID | None) -> None:
    """A transaction that names a hash sees that key and its tenant, and nothing else of them."""
    async with database.transaction(key_hash=b"\0" * 32) as connection:
        assert (await connection.execute(text("SELECT 1 FROM api_keys"))).all() == []
    query = text("SELECT key_hash FROM api_keys")
    async with database.transaction(tenant=victim) as connection:
        key_hash = (await connection.execute(query)).scalar_one()
    async with database.transaction(key_hash=key_hash) as connection:
        assert (await connection.execute(query)).scalars().all() == [key_hash]
        assert (await connection.execute(text("SELECT id FROM tenants"))).scalars().all() == [victim]
        assert (await connection.execute(text("SELECT 1 FROM voices"))).all() == []
        assert await attempt(connection, "UPDATE api_keys SET revoked_at = now()") == 0


async def test_sql_that_names_another_tenant_gets_nothing_that_opens(database: Database, victim: UUID) -> None:
    """No policy holds an attacker's own SQL, which can name any tenant; what it finds is sealed."""
    claim = text("SELECT set_config('app.tenant', :victim, true)")
    async with database.transaction(tenant=uuid4()) as connection:
        await connection.execute(claim, {"victim": str(victim)})
        dump = str((await connection.execute(text("SELECT v::text, c::text FROM voice_versions v, consents c"))).all())
    assert len(dump) > 1000
    for secret in (b"recording", b"upload", b"A. Person", bytes(range(64))):
        assert secret.hex() not in dump
        assert secret.decode("latin-1") not in dump


async def test_a_role_that_sees_everything_is_refused(owner: Database) -> None:
    """Serving as a superuser is an error at start, not a silent loss of the fences."""
    with pytest.raises(UnsafeRole):
        await owner.check_role()


async def test_a_service_that_inherits_the_operator_is_refused(owner: Database, database: Database) -> None:
    """A role into which somebody granted the operator's with inheritance is an error at start as well."""
    async with owner.transaction() as connection:
        major = int((await connection.execute(text("SHOW server_version_num"))).scalar_one()) // 10000
        inherit = "GRANT timbrelay_operator TO timbrelay_service WITH INHERIT TRUE"
        await connection.execute(text(inherit if major >= 16 else "ALTER ROLE timbrelay_service INHERIT"))
    try:
        with pytest.raises(UnsafeRole, match="operator"):
            await database.check_role()
    finally:
        async with owner.transaction() as connection:
            own = "GRANT timbrelay_operator TO timbrelay_service WITH INHERIT FALSE"
            await connection.execute(text(own if major >= 16 else "ALTER ROLE timbrelay_service NOINHERIT"))
    await database.check_role()
