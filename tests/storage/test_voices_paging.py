"""Pages of voices (storage.paging), over a real Postgres."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
from sqlalchemy import text

from storage.paging import MAX_LIMIT, Page
from storage.voices.voices import begin_deletion, create_voice, finish_deletion, list_voices
from tests.storage.conftest import Store

COUNT, TIES = 250, 25


async def _add(store: Store, consent: UUID, count: int) -> list[UUID]:
    """Voices of one transaction, and therefore of one time."""
    made = []
    async with store.open() as connection:
        for _ in range(count):
            voice = await create_voice(
                connection, store.keyring, store.tenant, name="demo", consent=consent, upload=b"upload"
            )
            assert voice is not None
            made.append(voice.id)
    return made


async def test_pages_have_neither_gap_nor_repeat_while_voices_come_and_go(store: Store) -> None:
    """250 voices, 25 each of the same moment, in pages of 7, with others made and deleted between the pages."""
    consent, chance = await store.add_consent(), random.Random(5)
    at_first = [voice for _ in range(COUNT // TIES) for voice in await _add(store, consent, TIES)]
    seen: list[UUID] = []
    gone: set[UUID] = set()
    page: Page | None = Page(7)
    while page is not None:
        async with store.open() as connection:
            found = await list_voices(connection, store.tenant, page)
        seen += [voice.id for voice in found.items]
        page = None if found.after is None else Page(7, found.after)
        assert len(found.items) == 7 or page is None
        await _add(store, consent, 1)
        going = chance.choice(at_first)
        async with store.open() as connection:
            if await begin_deletion(connection, store.tenant, going):
                await finish_deletion(connection, store.tenant, going)
                gone.add(going)
    assert len(seen) == len(set(seen))
    assert set(at_first) - gone <= set(seen) <= set(at_first)
    assert len(gone) > 20


async def test_a_page_that_ends_with_the_list_says_so(store: Store) -> None:
    """There is no empty last page."""
    consent = await store.add_consent()
    await _add(store, consent, 4)
    async with store.open() as connection:
        first = await list_voices(connection, store.tenant, Page(2))
        assert first.after is not None
        second = await list_voices(connection, store.tenant, Page(2, first.after))
        assert (len(second.items), second.after) == (2, None)
        times = [voice.created_at for voice in first.items + second.items]
        assert times == sorted(times, reverse=True)


@pytest.mark.parametrize("limit", [0, -1, MAX_LIMIT + 1])
def test_a_page_has_a_bound(limit: int) -> None:
    """No page is empty by wish, and none is the whole list."""
    with pytest.raises(ValueError, match="1 to 1000"):
        Page(limit)


@pytest.mark.parametrize("narrowed", [{}, {"name": "demo"}])
async def test_a_page_is_read_from_an_index_in_its_order(store: Store, narrowed: dict[str, str]) -> None:
    """No sort and no sequential scan, with the policies on (which the planner must see through)."""
    condition = "AND name = 'demo'" if narrowed else ""
    query = (
        f"EXPLAIN SELECT * FROM voices WHERE tenant_id = :tenant AND state <> 'deleted' {condition}"  # noqa: S608
        " AND (created_at, id) < (now(), :tenant) ORDER BY created_at DESC, id DESC LIMIT 50"
    )
    async with store.open() as connection:
        await connection.execute(text("SET LOCAL enable_seqscan = off"))
        await connection.execute(text("SET LOCAL enable_bitmapscan = off"))
        plan = "\n".join((await connection.execute(text(query), {"tenant": store.tenant})).scalars())
    assert ("voices_by_name" if narrowed else "voices_listed") in plan
    assert "Sort" not in plan
