"""The fences as the ORM meets them: classes mapped on the very tables, sessions on the service's transactions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Table, delete, inspect, select, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import clear_mappers, make_transient, registry

from storage.database import Database
from storage.tables import metadata
from tests.storage.catalogue import REFUSED, SHARED

Mapped = dict[str, type[Any]]


@pytest.fixture
def mapped(tables: dict[str, str]) -> Iterator[Mapped]:
    """A class for every table with tenants' rows; fails when the code knows another set of tables than the database."""
    own = registry(metadata=metadata)
    classes = {_name(table): _map(own, table) for table in metadata.tables.values()}
    assert set(classes) == set(tables) | (SHARED - {"public.alembic_version"})
    yield {name: mapped_class for name, mapped_class in classes.items() if name in tables}
    clear_mappers()


def _name(table: Table) -> str:
    return f"{table.schema or 'public'}.{table.name}"


def _map(own: registry, table: Table) -> type[Any]:
    made = type(table.name, (), {})
    own.map_imperatively(made, table)
    return made


def _session(connection: AsyncConnection) -> AsyncSession:
    return AsyncSession(connection, join_transaction_mode="create_savepoint", expire_on_commit=False)


async def _load_all(database: Database, mapped: Mapped, tenant: UUID) -> list[Any]:
    """Every object of a tenant, as it sees them itself."""
    async with database.transaction(tenant=tenant) as connection, _session(connection) as session:
        found = [entry for mapped_class in mapped.values() for entry in (await session.scalars(select(mapped_class)))]
        for entry in found:
            session.expunge(entry)
    return found


def _column(mapped_class: type[Any]) -> Any:
    return mapped_class.id if mapped_class.__name__ == "tenants" else mapped_class.tenant_id


async def test_a_session_finds_its_tenants_objects_only(
    database: Database, mapped: Mapped, tables: dict[str, str], victim: UUID, intruder: UUID | None
) -> None:
    """Neither by a query without a condition, nor by one for the other's rows, nor by the other's primary keys."""
    theirs = await _load_all(database, mapped, victim)
    assert {type(entry).__name__ for entry in theirs} == {mapped_class.__name__ for mapped_class in mapped.values()}
    async with database.transaction(tenant=intruder) as connection, _session(connection) as session:
        for mapped_class in mapped.values():
            column = _column(mapped_class)
            assert set(await session.scalars(select(column))) <= {intruder}, mapped_class
            assert (await session.scalars(select(mapped_class).where(column == victim))).all() == [], mapped_class
        for entry in theirs:
            assert await session.get(type(entry), inspect(entry).identity) is None, type(entry)


async def test_a_session_changes_and_deletes_its_tenants_objects_only(
    database: Database, mapped: Mapped, victim: UUID, intruder: UUID | None
) -> None:
    """In bulk, whether or not the condition names the other."""
    before = await _count(database, mapped, victim)
    async with database.transaction(tenant=intruder) as connection, _session(connection) as session:
        for mapped_class in mapped.values():
            column = _column(mapped_class)
            same = {column.key: column}
            for statement in (
                update(mapped_class).where(column == victim).values(same),
                update(mapped_class).values({column.key: victim}),
                delete(mapped_class).where(column == victim),
                delete(mapped_class),
            ):
                with suppress(DBAPIError):
                    async with session.begin_nested():
                        await session.execute(statement.execution_options(synchronize_session=False))
        await session.commit()
    assert await _count(database, mapped, victim) == before


async def test_a_session_adds_nothing_for_another_tenant(
    database: Database, mapped: Mapped, victim: UUID, intruder: UUID | None
) -> None:
    """An object of another tenant's that is put into the session is refused when it is written."""
    for entry in await _load_all(database, mapped, victim):
        make_transient(entry)
        async with database.transaction(tenant=intruder) as connection:
            session = _session(connection)
            session.add(entry)
            with pytest.raises(DBAPIError) as refused:
                await session.flush()
            assert getattr(refused.value.orig, "sqlstate", None) == REFUSED, type(entry)
            await session.close()


async def _count(database: Database, mapped: Mapped, tenant: UUID) -> dict[str, int]:
    loaded = [type(entry).__name__ for entry in await _load_all(database, mapped, tenant)]
    return {name: loaded.count(name) for name in sorted(set(loaded))}
