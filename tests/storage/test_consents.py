"""storage.voices.consents, over a real Postgres."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from storage.database import Database
from storage.errors import DecryptionError, IllegalTransition
from storage.paging import Page
from storage.states import ConsentState, VersionState, VoiceState
from storage.voices.consents import (
    Ended,
    Rejected,
    Statement,
    Terms,
    end_consent,
    erase_consent,
    find_consent,
    grant_consent,
    list_consents,
    list_expired,
    load_consent_recording,
    load_statement,
)
from storage.voices.versions import add_version, load_upload
from storage.voices.voices import begin_deletion, create_voice, finish_deletion
from tests.conftest import STATEMENT, TERMS, MakeTenant
from tests.storage.conftest import Meet, Step, Store

RECORDING = b"RIFF spoken consent" + bytes(range(200))


async def test_a_consent_is_kept_whole_and_read_by_its_tenant_alone(store: Store, make_tenant: MakeTenant) -> None:
    """Terms in plain, signer, statement and recording sealed; to another tenant it is not there."""
    until = datetime.now(UTC) + timedelta(days=365)
    terms, chosen = Terms("2026-11", "da", "audiobooks", until), uuid4()
    statement = Statement("Æ. Person", "Jeg samtykker.")
    async with store.open() as connection:
        made = await grant_consent(
            connection, store.keyring, store.tenant, terms, statement, recording=RECORDING, consent_id=chosen
        )
        assert (made.id, made.state, made.terms, made.has_recording) == (chosen, ConsentState.ACTIVE, terms, True)
        assert await find_consent(connection, store.tenant, chosen) == made
        assert await load_statement(connection, store.keyring, store.tenant, chosen) == statement
        assert await load_consent_recording(connection, store.keyring, store.tenant, chosen) == RECORDING
        bare = await grant_consent(connection, store.keyring, store.tenant, TERMS, STATEMENT)
        assert not bare.has_recording
        assert await load_consent_recording(connection, store.keyring, store.tenant, bare.id) is None
    other = replace(store, tenant=(await make_tenant("other")).id)
    async with other.open() as connection:
        assert await find_consent(connection, other.tenant, chosen) is None
        assert await load_statement(connection, store.keyring, other.tenant, chosen) is None
        assert (await list_consents(connection, other.tenant, Page(10))).items == ()


async def test_nobody_is_named_in_the_clear(store: Store, owner: Database) -> None:
    """Neither signer nor recording stands in the row, nor in what a statement looks like in a log."""
    consent = await store.add_consent(recording=RECORDING)
    async with owner.transaction() as connection:
        query = text("SELECT c::text FROM consents c WHERE id = :id")
        row: str = (await connection.execute(query, {"id": consent})).scalar_one()
    for secret in (b"A. Person", b"I agree", RECORDING):
        assert secret.hex() not in row
        assert secret.decode("latin-1") not in row
    assert "Person" not in repr(STATEMENT)


async def test_a_statement_that_was_moved_to_another_consent_does_not_open(store: Store, owner: Database) -> None:
    """Somebody with the database alone cannot put one person's consent in place of another's."""
    first, second = await store.add_consent(), await store.add_consent()
    move = text("UPDATE consents SET sealed = (SELECT sealed FROM consents WHERE id = :first) WHERE id = :second")
    async with owner.transaction() as connection:
        await connection.execute(move, {"first": first, "second": second})
    with pytest.raises(DecryptionError):
        async with store.open() as connection:
            await load_statement(connection, store.keyring, store.tenant, second)


@pytest.mark.parametrize("state", [ConsentState.WITHDRAWN, ConsentState.EXPIRED])
async def test_a_consent_ends_once_and_names_the_voices_that_hang_on_it(store: Store, state: ConsentState) -> None:
    """All of them but the deleted; those that are going already as well, since somebody may wait for them."""
    consent = await store.add_consent()
    voices = {it: await store.add_voice(it, consent=consent) for it in VoiceState}
    await store.add_voice()
    async with store.open() as connection:
        found = await end_consent(connection, store.tenant, consent, state)
    assert found.voices == sorted(voice for it, voice in voices.items() if it is not VoiceState.DELETED)
    assert found.rejected == []
    async with store.open() as connection:
        ended = await find_consent(connection, store.tenant, consent)
        assert ended is not None
        assert (ended.state, ended.withdrawn_at is not None) == (state, state is ConsentState.WITHDRAWN)
        assert await load_statement(connection, store.keyring, store.tenant, consent) == STATEMENT
    for wanted in (ConsentState.WITHDRAWN, ConsentState.EXPIRED, ConsentState.ACTIVE):
        with pytest.raises(IllegalTransition):
            async with store.open() as connection:
                await end_consent(connection, store.tenant, consent, wanted)


async def test_a_consent_that_is_not_there_does_not_end(store: Store, make_tenant: MakeTenant) -> None:
    """Nobody's and another tenant's are the same nothing; a voice's id is no consent's, and its key stays."""
    other = replace(store, tenant=(await make_tenant("other")).id)
    voice = await store.add_voice()
    for consent in (uuid4(), await other.add_consent(), voice):
        for step in (partial(end_consent, state=ConsentState.WITHDRAWN), erase_consent):
            with pytest.raises(IllegalTransition, match="nothing"):
                async with store.open() as connection:
                    await step(connection, store.tenant, consent)
    await store.see(voice)
    async with store.open() as connection:
        assert await store.keyring.load_data_key(connection, store.tenant, voice) is not None


async def test_a_replacement_that_waits_under_an_ended_consent_is_lost_and_the_voice_is_not(store: Store) -> None:
    """The voice speaks by another consent: it goes on with what it has, and may be given another recording."""
    own, later = await store.add_consent(), await store.add_consent()
    voice = await store.add_voice(consent=own)
    async with store.open() as connection:
        await add_version(connection, store.keyring, store.tenant, voice, consent=later, upload=b"upload 2")
    async with store.open() as connection:
        ended = await end_consent(connection, store.tenant, later, ConsentState.WITHDRAWN)
        assert (ended.voices, ended.rejected) == ([], [Rejected(voice, 2, "consent_withdrawn")])
        assert await load_upload(connection, store.keyring, store.tenant, voice, 2) is None
    found = await store.see(voice)
    assert found.latest is not None
    assert (found.state, found.version, found.latest.state) == (VoiceState.READY, 1, VersionState.FAILED)
    assert found.latest.error_code == "consent_withdrawn"
    async with store.open() as connection:
        await add_version(connection, store.keyring, store.tenant, voice, consent=own, upload=b"upload 3")


async def test_a_voice_that_was_replaced_hangs_on_its_new_consent(store: Store) -> None:
    """The consent of the recording that speaks counts; the old one may end without the voice."""
    own, later = await store.add_consent(), await store.add_consent()
    voice = await store.add_voice(consent=own)
    async with store.open() as connection:
        await add_version(connection, store.keyring, store.tenant, voice, consent=later, upload=b"upload 2")
    await store.complete(voice, 2)
    async with store.open() as connection:
        assert (await end_consent(connection, store.tenant, own, ConsentState.WITHDRAWN)).voices == []
        assert await erase_consent(connection, store.tenant, own)
        assert (await end_consent(connection, store.tenant, later, ConsentState.WITHDRAWN)).voices == [voice]


async def test_a_voice_and_its_consents_end_meet_in_either_order(store: Store, meet: Meet) -> None:
    """Either the voice is made first, and is named by the end, or it is not made."""

    def make(consent: UUID) -> Step:
        return partial(
            create_voice, keyring=store.keyring, tenant=store.tenant, name="demo", consent=consent, upload=b"upload"
        )

    def end(consent: UUID) -> Step:
        return partial(end_consent, tenant=store.tenant, consent_id=consent, state=ConsentState.WITHDRAWN)

    consent = await store.add_consent()
    made, ended = await meet(store, make(consent), end(consent))
    assert ended == Ended([made.id], [])  # type: ignore[attr-defined]
    consent = await store.add_consent()
    assert await meet(store, end(consent), make(consent)) == (Ended([], []), None)


async def test_a_consent_is_erased_when_no_voice_hangs_on_it_any_more(store: Store, owner: Database) -> None:
    """Its key, statement and recording go, and it is not found; a second time there is nothing to do."""
    consent = await store.add_consent(recording=RECORDING)
    voice = await store.add_voice(consent=consent)
    with pytest.raises(IllegalTransition, match="in use"):
        async with store.open() as connection:
            await erase_consent(connection, store.tenant, consent)
    async with store.open() as connection:
        assert await load_statement(connection, store.keyring, store.tenant, consent) == STATEMENT
        await begin_deletion(connection, store.tenant, voice)
        await finish_deletion(connection, store.tenant, voice)
        assert await erase_consent(connection, store.tenant, consent) is True
    async with store.open() as connection:
        assert await erase_consent(connection, store.tenant, consent) is False
        assert await find_consent(connection, store.tenant, consent) is None
        assert await load_statement(connection, store.keyring, store.tenant, consent) is None
        assert consent not in [found.id for found in (await list_consents(connection, store.tenant, Page(9))).items]
    left = text("SELECT count(*) FROM consents WHERE id = :id AND (sealed IS NOT NULL OR recording IS NOT NULL)")
    keys = text("SELECT count(*) FROM keyring.data_keys WHERE owner_id = :id")
    async with owner.transaction() as connection:
        for query in (left, keys):
            assert (await connection.execute(query, {"id": consent})).scalar() == 0


async def test_consents_whose_time_is_over_are_found_the_oldest_first(store: Store) -> None:
    """Active ones alone, those without an end never, and no more than asked for."""
    now = datetime.now(UTC)
    ends = {days: await store.add_consent(replace(TERMS, expires_at=now + timedelta(days=days))) for days in (3, 1, 2)}
    await store.add_consent()
    async with store.open() as connection:
        for days, limit, expected in ((0.5, 9, []), (2.5, 9, [ends[1], ends[2]]), (9, 1, [ends[1]])):
            assert await list_expired(connection, store.tenant, now + timedelta(days=days), limit) == expected
        await end_consent(connection, store.tenant, ends[1], ConsentState.EXPIRED)
        assert await list_expired(connection, store.tenant, now + timedelta(days=9), 9) == [ends[2], ends[3]]


async def test_consents_are_listed_in_pages_newest_first(store: Store) -> None:
    """Withdrawn ones as well, each once, also those of one moment."""
    consents = [await store.add_consent() for _ in range(2)]
    async with store.open() as connection:
        for _ in range(5):
            consents.append((await grant_consent(connection, store.keyring, store.tenant, TERMS, STATEMENT)).id)
        await end_consent(connection, store.tenant, consents[0], ConsentState.WITHDRAWN)
        seen, page = [], Page(2)
        for _ in range(4):
            found = await list_consents(connection, store.tenant, page)
            seen += [consent.id for consent in found.items]
            page = Page(2, found.after)
    assert found.after is None
    assert (len(seen), set(seen), seen[5:]) == (7, set(consents), [consents[1], consents[0]])
