"""storage.tenancy.usage, over a real Postgres."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from functools import partial
from uuid import UUID

from storage.paging import Page
from storage.tenancy.usage import Usage, add_usage, read_usage
from tests.conftest import MakeTenant
from tests.storage.conftest import Meet, Store

DAY = date(2026, 11, 30)
FIRST, SECOND = UUID(int=1), UUID(int=2)


async def _read(store: Store, first: date = DAY, last: date = DAY, voice: UUID | None = None) -> list[Usage]:
    async with store.open() as connection:
        found = await read_usage(connection, store.tenant, first, last, voice=voice, page=Page(100))
    assert found.after is None
    return list(found.items)


async def test_usage_adds_up_by_voice_and_day(store: Store, make_tenant: MakeTenant) -> None:
    """Within one call and over several; another tenant's is its own."""
    async with store.open() as connection:
        await add_usage(connection, store.tenant, [Usage(DAY, FIRST, 1, 2, 3, 4), Usage(DAY, FIRST, 10, 20, 30, 40)])
        await add_usage(connection, store.tenant, [Usage(DAY, SECOND, 1, 1, 1, 1), Usage(DAY, FIRST, 100, 0, 0, 2**40)])
        await add_usage(connection, store.tenant, [])
    assert await _read(store) == [Usage(DAY, SECOND, 1, 1, 1, 1), Usage(DAY, FIRST, 111, 22, 33, 44 + 2**40)]
    assert await _read(store, voice=SECOND) == [Usage(DAY, SECOND, 1, 1, 1, 1)]
    assert await _read(replace(store, tenant=(await make_tenant("other")).id)) == []


async def test_usage_is_read_from_the_first_day_to_the_last(store: Store) -> None:
    """Both included, newest first."""
    days = [DAY + timedelta(days=number) for number in range(5)]
    async with store.open() as connection:
        await add_usage(connection, store.tenant, [Usage(day, FIRST, contexts=1) for day in days])
    assert [row.day for row in await _read(store, days[1], days[3])] == [days[3], days[2], days[1]]
    assert await _read(store, days[3], days[1]) == []


async def test_pages_of_usage_have_neither_gap_nor_repeat(store: Store) -> None:
    """Also within a day, where pages end between voices."""
    rows = [Usage(DAY + timedelta(days=day), UUID(int=voice), 1) for day in range(4) for voice in range(5)]
    async with store.open() as connection:
        await add_usage(connection, store.tenant, rows)
        seen: list[Usage] = []
        page: Page | None = Page(3)
        while page is not None:
            found = await read_usage(connection, store.tenant, date.min, date.max, page=page)
            seen += found.items
            page = None if found.after is None else Page(3, found.after)
    assert seen == sorted(rows, key=lambda row: (row.day, row.voice_id), reverse=True)


async def test_two_that_add_at_once_are_both_counted(store: Store, meet: Meet) -> None:
    """In whatever order they name the voices."""
    both = [Usage(DAY, FIRST, 1), Usage(DAY, SECOND, 1)]
    await meet(
        store,
        partial(add_usage, tenant=store.tenant, rows=both),
        partial(add_usage, tenant=store.tenant, rows=both[::-1]),
    )
    assert [row.contexts for row in await _read(store)] == [2, 2]
