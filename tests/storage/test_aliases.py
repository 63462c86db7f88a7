"""storage.voices.aliases and storage.names, over a real Postgres."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from uuid import UUID, uuid4

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.errors import InvalidValue
from storage.names import check_alias
from storage.states import VoiceState
from storage.voices.aliases import MAX_OF_A_VOICE, list_aliases, remove_alias, set_alias
from storage.voices.voices import begin_deletion, find_speaker, finish_deletion
from tests.conftest import MakeTenant
from tests.storage.conftest import Meet, Step, Store


@pytest.mark.parametrize(
    "alias",
    [
        *("", " ", "a b", "ä", "a/b", "a\n", "a\0", "x" * 65, "..", "-x", "a'b", "а", "a\u200cb"),
        "6f2c1c38-5f0e-4c39-9f6c-2d1c36c6c9ee",
        "6F2C1C385F0E4C399F6C2D1C36C6C9EE",
    ],
)
async def test_what_can_be_no_alias_is_refused(store: Store, alias: str) -> None:
    """Empty, too long, of other characters (also ones that look the same), or like an id in any of its forms."""
    voice = await store.add_voice()
    for step in (partial(set_alias, voice_id=voice), remove_alias):
        with pytest.raises(InvalidValue, match="`alias` must"):
            async with store.open() as connection:
                await step(connection, store.tenant, alias)


@pytest.mark.parametrize("alias", ["a", "x" * 64, "Narrator_2.de-DE", "_..", "0", "6f2c1c38-5f0e"])
def test_an_alias_is_of_plain_characters(alias: str) -> None:
    """One to sixty-four letters, digits, `_`, `.` and `-`, of which the last two do not begin it."""
    assert check_alias(alias) == alias


async def test_an_alias_stands_for_one_voice_and_moves(store: Store, make_tenant: MakeTenant) -> None:
    """Both voices' revisions count the move; setting what is set changes nothing; another tenant has its own."""
    first, second = await store.add_voice(), await store.add_voice()
    async with store.open() as connection:
        assert await set_alias(connection, store.tenant, "narrator", first)
    before = [(await store.see(voice)).revision for voice in (first, second)]
    async with store.open() as connection:
        assert await set_alias(connection, store.tenant, "narrator", first)
    assert [(await store.see(voice)).revision for voice in (first, second)] == before
    async with store.open() as connection:
        assert await set_alias(connection, store.tenant, "narrator", second)
    seen = [await store.see(voice) for voice in (first, second)]
    assert [voice.revision for voice in seen] == [revision + 1 for revision in before]
    assert [voice.aliases for voice in seen] == [(), ("narrator",)]
    other = replace(store, tenant=(await make_tenant("other")).id)
    theirs = await other.add_voice()
    async with other.open() as connection:
        assert await find_speaker(connection, other.tenant, "narrator") is None
        assert await set_alias(connection, other.tenant, "narrator", theirs)
        assert not await set_alias(connection, other.tenant, "mine", first)
    async with store.open() as connection:
        found = await find_speaker(connection, store.tenant, "narrator")
    assert found is not None
    assert found.voice == second


async def test_a_voice_that_goes_takes_no_alias_and_loses_its_own(store: Store) -> None:
    """Neither one that is being deleted, nor a deleted, nor one that was never there."""
    voices = [await store.add_voice(state) for state in (VoiceState.DELETING, VoiceState.DELETED)]
    for voice in (*voices, uuid4()):
        async with store.open() as connection:
            assert await set_alias(connection, store.tenant, "narrator", voice) is False
    voice = await store.add_voice()
    async with store.open() as connection:
        assert await set_alias(connection, store.tenant, "narrator", voice)
        await begin_deletion(connection, store.tenant, voice)
        await finish_deletion(connection, store.tenant, voice)
        assert await list_aliases(connection, store.tenant) == []
        assert await set_alias(connection, store.tenant, "narrator", await store.add_voice())


async def test_an_alias_is_removed_once(store: Store) -> None:
    """The voice's revision counts it; what is not there is not removed."""
    voice = await store.add_voice()
    async with store.open() as connection:
        await set_alias(connection, store.tenant, "narrator", voice)
    before = (await store.see(voice)).revision
    async with store.open() as connection:
        assert await remove_alias(connection, store.tenant, "narrator") == voice
    async with store.open() as connection:
        assert await remove_alias(connection, store.tenant, "narrator") is None
    assert (await store.see(voice)).revision == before + 1


async def test_aliases_are_listed_in_their_order_a_part_at_a_time(store: Store) -> None:
    """Each once, whatever its voice, and each voice has its own in order."""
    first, second = await store.add_voice(), await store.add_voice()
    async with store.open() as connection:
        for number in range(7):
            await set_alias(connection, store.tenant, f"alias-{number}", first if number % 2 else second)
        seen, after = [], ""
        while found := await list_aliases(connection, store.tenant, after=after, limit=3):
            seen += [(entry.alias, entry.voice_id) for entry in found]
            after = found[-1].alias
    assert seen == [(f"alias-{number}", first if number % 2 else second) for number in range(7)]
    assert (await store.see(first)).aliases == ("alias-1", "alias-3", "alias-5")


async def test_a_voice_has_a_bound_of_aliases(store: Store) -> None:
    """One more is refused with the bound, on this voice alone."""
    voice = await store.add_voice()
    async with store.open() as connection:
        for number in range(MAX_OF_A_VOICE):
            await set_alias(connection, store.tenant, f"alias-{number}", voice)
        with pytest.raises(InvalidValue, match=str(MAX_OF_A_VOICE)):
            await set_alias(connection, store.tenant, "one-more", voice)
        assert await set_alias(connection, store.tenant, "one-more", await store.add_voice())


async def test_two_that_set_an_alias_at_once_leave_it_with_the_second(store: Store, meet: Meet) -> None:
    """The same voice or two of them, that was free or in use, and also when the two exchange their aliases."""
    first, second = await store.add_voice(), await store.add_voice()

    def step(alias: str, voice: UUID) -> Step:
        return partial(set_alias, tenant=store.tenant, alias=alias, voice_id=voice)

    for one, other in ((first, second), (first, first)):
        assert await meet(store, step("narrator", one), step("narrator", other)) == (True, True)
        assert "narrator" in (await store.see(other)).aliases
    await meet(store, step("a", first), step("b", first))
    await meet(store, step("a", second), step("b", second))

    async def exchange(connection: AsyncConnection) -> object:
        await set_alias(connection, store.tenant, "a", first)
        return await set_alias(connection, store.tenant, "b", second)

    assert await meet(store, exchange, step("b", first)) == (True, True)
    assert (await store.see(first)).aliases == ("a", "b", "narrator")
