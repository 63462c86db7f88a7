"""storage.voices.voices, over a real Postgres."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.database import Database
from storage.errors import IllegalTransition, InvalidValue, StaleRevision
from storage.paging import Page
from storage.states import ConsentState, VoiceState
from storage.voices.aliases import set_alias
from storage.voices.consents import end_consent
from storage.voices.versions import add_version, complete_enrolment, fail_enrolment, load_embedding, load_upload
from storage.voices.voices import (
    Erased,
    Speaker,
    begin_deletion,
    create_voice,
    disable_voice,
    enable_voice,
    find_speaker,
    find_voice,
    finish_deletion,
    list_unused,
    list_voices,
    rename_voice,
    touch_voices,
)
from tests.conftest import TERMS, MakeTenant
from tests.storage.conftest import Meet, Store, enrolled

Step = Callable[[Store, AsyncConnection, UUID], Awaitable[object]]
YES, NO = True, False


async def _replace(store: Store, connection: AsyncConnection, voice: UUID) -> object:
    consent = (await connection.execute(text("SELECT id FROM consents LIMIT 1"))).scalar_one()
    return await add_version(connection, store.keyring, store.tenant, voice, consent=consent, upload=b"upload 2")


STEPS: dict[str, Step] = {
    "rename": lambda store, connection, voice: rename_voice(connection, store.tenant, voice, "other", revision=None),
    "disable": lambda store, connection, voice: disable_voice(connection, store.tenant, voice),
    "enable": lambda store, connection, voice: enable_voice(connection, store.tenant, voice),
    "replace": _replace,
    "complete": lambda store, connection, voice: complete_enrolment(
        connection, store.keyring, store.tenant, voice, 1, enrolled(1)
    ),
    "fail": lambda store, connection, voice: fail_enrolment(
        connection, store.tenant, voice, 1, code="recording_silent", message="silent"
    ),
    "begin deletion": lambda store, connection, voice: begin_deletion(connection, store.tenant, voice),
    "finish deletion": lambda store, connection, voice: finish_deletion(connection, store.tenant, voice),
}
PENDING, READY, FAILED, DISABLED, DELETING, DELETED = VoiceState
LEGAL = {
    PENDING: {"rename": PENDING, "complete": READY, "fail": FAILED, "begin deletion": DELETING},
    READY: {"rename": READY, "disable": DISABLED, "replace": READY, "begin deletion": DELETING},
    FAILED: {"rename": FAILED, "replace": PENDING, "begin deletion": DELETING},
    DISABLED: {"rename": DISABLED, "enable": READY, "replace": DISABLED, "begin deletion": DELETING},
    DELETING: {"begin deletion": DELETING, "finish deletion": DELETED},
    DELETED: {"begin deletion": DELETED, "finish deletion": DELETED},
}
"""Where each step leads from each state; what is not here is an illegal transition."""


@pytest.mark.parametrize("state", VoiceState)
async def test_each_step_leads_where_the_table_says_or_is_illegal(store: Store, state: VoiceState) -> None:
    """An illegal step raises and changes nothing; each legal one is counted as a revision, a repeated deletion not."""
    current = text("SELECT state, revision FROM voices WHERE id = :id")
    for name, step in STEPS.items():
        voice = await store.add_voice(state)
        async with store.open() as connection:
            before = (await connection.execute(current, {"id": voice})).one()
        legal = LEGAL[state].get(name)
        if legal is None:
            with pytest.raises(IllegalTransition):
                async with store.open() as connection:
                    await step(store, connection, voice)
        else:
            async with store.open() as connection:
                await step(store, connection, voice)
        async with store.open() as connection:
            after = (await connection.execute(current, {"id": voice})).one()
        assert after.state == (legal or state), (state, name)
        repeated = legal is None or (state in (DELETING, DELETED) and legal == state)
        assert after.revision == before.revision + (0 if repeated else 1), (state, name)


@pytest.mark.parametrize("name", STEPS)
async def test_a_voice_that_is_not_there_takes_no_step(store: Store, name: str, make_tenant: MakeTenant) -> None:
    """Neither an id of nobody's nor another tenant's: both are the same nothing."""
    await store.add_consent()
    other = replace(store, tenant=(await make_tenant("other")).id)
    for voice in (uuid4(), await other.add_voice(PENDING)):
        if name == "begin deletion":
            async with store.open() as connection:
                assert await begin_deletion(connection, store.tenant, voice) is False
            continue
        with pytest.raises(IllegalTransition, match="nothing"):
            async with store.open() as connection:
                await STEPS[name](store, connection, voice)


async def test_a_voice_is_made_pending_under_a_consent_in_force_alone(store: Store, make_tenant: MakeTenant) -> None:
    """None for a consent that is unknown, over, withdrawn or another tenant's; the id may be chosen before."""
    over = replace(TERMS, expires_at=datetime.now(UTC) - timedelta(seconds=1))
    withdrawn = await store.add_consent()
    async with store.open() as connection:
        await end_consent(connection, store.tenant, withdrawn, ConsentState.WITHDRAWN)
    others = await replace(store, tenant=(await make_tenant("other")).id).add_consent()
    chosen = uuid4()
    make = partial(create_voice, keyring=store.keyring, tenant=store.tenant, name="A", upload=b"u", voice_id=chosen)
    async with store.open() as connection:
        for consent in (uuid4(), await store.add_consent(over), withdrawn, others):
            assert await make(connection, consent=consent) is None
        voice = await make(connection, consent=await store.add_consent())
        assert voice is not None
        assert (voice.id, voice.name, voice.state, voice.version, voice.revision) == (chosen, "A", PENDING, 0, 1)
        assert voice.latest is not None
        assert (voice.latest.number, voice.latest.stage) == (1, "waiting")
        assert await load_upload(connection, store.keyring, store.tenant, chosen, 1) == b"u"


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a\0b", "\u202eevil", "x" * 201, "\ud800"])
async def test_a_name_that_cannot_be_shown_is_refused(store: Store, name: str) -> None:
    """Blank, with control characters, turning the direction, too long, or no text at all."""
    voice, consent = await store.add_voice(), await store.add_consent()
    with pytest.raises(InvalidValue, match="`name` must"):
        async with store.open() as connection:
            await rename_voice(connection, store.tenant, voice, name, revision=None)
    with pytest.raises(InvalidValue):
        async with store.open() as connection:
            await create_voice(connection, store.keyring, store.tenant, name=name, consent=consent, upload=b"u")


@pytest.mark.parametrize("name", ["x" * 200, "Ærøskøbing 東京 👩", "می\u200cخواهم", "'; DROP TABLE voices; --", "%_\\"])
async def test_a_name_is_kept_as_it_is_and_found_by_exactly_that(store: Store, name: str) -> None:
    """Two hundred characters of whatever script, of two planes, or of SQL."""
    voice = await store.add_voice(name=name)
    await store.add_voice(name="another")
    async with store.open() as connection:
        found = await list_voices(connection, store.tenant, Page(10), name=name)
    assert [(entry.id, entry.name) for entry in found.items] == [(voice, name)]


async def test_a_rename_of_a_stale_revision_is_refused(store: Store) -> None:
    """Of two who read the same revision the second is told; without a revision the last one wins."""
    voice = await store.add_voice()
    revision = (await store.see(voice)).revision
    async with store.open() as connection:
        renamed = await rename_voice(connection, store.tenant, voice, "first", revision=revision)
    assert (renamed.name, renamed.revision) == ("first", revision + 1)
    with pytest.raises(StaleRevision) as stale:
        async with store.open() as connection:
            await rename_voice(connection, store.tenant, voice, "second", revision=revision)
    assert (stale.value.given, stale.value.found) == (revision, revision + 1)
    async with store.open() as connection:
        await rename_voice(connection, store.tenant, voice, "third", revision=None)
    assert (await store.see(voice)).name == "third"


async def test_only_a_ready_voice_under_a_consent_in_force_speaks(store: Store) -> None:
    """By its id or its alias; what is in any other state, or whose consent is over or withdrawn, does not."""
    withdrawn = await store.add_consent()
    soon = await store.add_consent(replace(TERMS, expires_at=datetime.now(UTC) + timedelta(hours=1)))
    voices = {state: await store.add_voice(state) for state in VoiceState}
    silent = [voice for state, voice in voices.items() if state is not READY]
    by_withdrawn, by_expired = [await store.add_voice(consent=consent) for consent in (withdrawn, soon)]
    async with store.open() as connection:
        assert await set_alias(connection, store.tenant, "narrator", voices[READY])
        await end_consent(connection, store.tenant, withdrawn, ConsentState.WITHDRAWN)
        await connection.execute(text("UPDATE consents SET expires_at = now() WHERE id = :id"), {"id": soon})
    async with store.open() as connection:
        for name in (str(voices[READY]), str(voices[READY]).upper(), "narrator"):
            speaker = await find_speaker(connection, store.tenant, name)
            assert speaker == Speaker(voices[READY], 1, READY)
        assert await load_embedding(connection, store.keyring, store.tenant, voices[READY], 1) == b"embedding 1"
        for voice in (*silent, by_withdrawn, by_expired):
            assert await find_speaker(connection, store.tenant, str(voice)) is None
            assert await load_embedding(connection, store.keyring, store.tenant, voice, 1) is None
        for name in ("", "Narrator", "nobody", "a\0b", "half \ud83d", "x" * 10_000, "'; --", str(uuid4())):
            assert await find_speaker(connection, store.tenant, name) is None


async def test_a_deletion_takes_everything_but_the_id(store: Store, owner: Database) -> None:
    """Key, versions, aliases and name are gone, and it is not found; the second time there is nothing left to take."""
    voice = await store.add_voice(name="somebody")
    async with store.open() as connection:
        await set_alias(connection, store.tenant, "narrator", voice)
        await begin_deletion(connection, store.tenant, voice)
        assert (await store.see(voice)).state is READY
    assert (await store.see(voice)).state is DELETING
    async with store.open() as connection:
        assert await finish_deletion(connection, store.tenant, voice) == Erased(1, 1, 1)
    async with store.open() as connection:
        assert await finish_deletion(connection, store.tenant, voice) == Erased(0, 0, 0)
        assert await find_voice(connection, store.tenant, voice) is None
        assert (await list_voices(connection, store.tenant, Page(10))).items == ()
    async with owner.transaction() as connection:
        for query in (
            "SELECT count(*) FROM keyring.data_keys WHERE owner_id = :voice",
            "SELECT count(*) FROM voice_versions WHERE voice_id = :voice",
            "SELECT count(*) FROM voice_aliases WHERE voice_id = :voice",
            "SELECT count(*) FROM voices WHERE id = :voice AND name <> ''",
        ):
            assert (await connection.execute(text(query), {"voice": voice})).scalar() == 0, query


async def test_of_two_deletions_at_once_one_is_begun(store: Store, meet: Meet) -> None:
    """The second waits, and finds it begun; finishing twice takes everything once."""
    voice = await store.add_voice()
    begin = partial(begin_deletion, tenant=store.tenant, voice_id=voice)
    assert await meet(store, begin, begin) == (YES, NO)
    finish = partial(finish_deletion, tenant=store.tenant, voice_id=voice)
    assert await meet(store, finish, finish) == (Erased(1, 1, 0), Erased(0, 0, 0))


async def test_voices_are_listed_by_their_state(store: Store) -> None:
    """Deleted ones are in no list."""
    voices = {state: await store.add_voice(state) for state in VoiceState}
    async with store.open() as connection:
        everything = {voice.id for voice in (await list_voices(connection, store.tenant, Page(10))).items}
        assert everything == {voice for state, voice in voices.items() if state is not DELETED}
        for state, voice in voices.items():
            found = (await list_voices(connection, store.tenant, Page(10), state=state)).items
            assert [entry.id for entry in found] == ([] if state is DELETED else [voice])


async def test_last_use_is_noted_and_never_goes_back(store: Store) -> None:
    """Unused ones are found, the longest unused first, but not those that are going."""
    first, second, going = [await store.add_voice() for _ in range(3)]
    now = datetime.now(UTC)
    async with store.open() as connection:
        await touch_voices(connection, store.tenant, {first: now + timedelta(days=2), second: now + timedelta(days=1)})
        await touch_voices(connection, store.tenant, {first: now - timedelta(days=9), uuid4(): now})
        await begin_deletion(connection, store.tenant, going)
        for days, limit, expected in ((0, 9, []), (3, 9, [second, first]), (3, 1, [second]), (1.5, 9, [second])):
            before = now + timedelta(days=days)
            assert await list_unused(connection, store.tenant, before, limit) == expected
    assert (await store.see(first)).last_used_at == now + timedelta(days=2)
    assert (await store.see(first)).revision == (await store.see(second)).revision == 2


async def test_a_speaker_knows_when_its_consent_ends(store: Store) -> None:
    """So that what is spoken with it ends then, without anybody looking again."""
    at = datetime.now(UTC) + timedelta(hours=1)
    voice = await store.add_voice(consent=await store.add_consent(replace(TERMS, expires_at=at)))
    async with store.open() as connection:
        assert await find_speaker(connection, store.tenant, str(voice)) == Speaker(voice, 1, READY, at)
