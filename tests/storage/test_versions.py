"""storage.voices.versions, over a real Postgres."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.database import Database
from storage.encryption.envelope import Kind, Label
from storage.errors import DecryptionError, IllegalTransition
from storage.states import ConsentState, VersionState, VoiceState
from storage.voices.consents import end_consent
from storage.voices.versions import (
    add_version,
    claim_enrolment,
    complete_enrolment,
    fail_enrolment,
    list_enrolments_under_way,
    list_versions,
    load_embedding,
    load_held,
    load_upload,
    report_stage,
)
from storage.voices.voices import Voice, begin_deletion, disable_voice, enable_voice, finish_deletion
from tests.storage.conftest import Meet, Store, enrolled

REASON = {"code": "recording_silent", "message": "it is silent"}
LEASE_S = 60.0


async def _replace(store: Store, voice: UUID, upload: bytes = b"upload 2") -> Voice:
    consent = await store.add_consent()
    async with store.open() as connection:
        found = await add_version(connection, store.keyring, store.tenant, voice, consent=consent, upload=upload)
    assert found is not None
    return found


async def _fail(store: Store, voice: UUID, version: int) -> None:
    async with store.open() as connection:
        await fail_enrolment(connection, store.tenant, voice, version, **REASON)


async def test_an_enrolled_version_has_its_contents_and_no_upload(store: Store) -> None:
    """Recording, embedding, duration and quality are there, the upload is not, and the stage says that it is over."""
    voice = await store.add_voice(VoiceState.PENDING)
    async with store.open() as connection:
        assert await load_upload(connection, store.keyring, store.tenant, voice, 1) == b"upload 1"
    await store.complete(voice, 1)
    async with store.open() as connection:
        assert await load_upload(connection, store.keyring, store.tenant, voice, 1) is None
        assert await load_embedding(connection, store.keyring, store.tenant, voice, 1) == b"embedding 1"
        assert (
            await load_held(connection, store.keyring, Label(store.tenant, voice, Kind.RECORDING, 1)) == b"recording 1"
        )
        [version] = await list_versions(connection, store.tenant, voice)
    assert (version.state, version.stage, version.duration_s) == (VersionState.READY, "ended", 6.0)
    assert (version.quality, version.quality_parts, version.error_code) == (90, {"snr_db": 30.5}, None)
    assert version.finished_at is not None
    assert (await store.see(voice)).latest == version


async def test_no_row_holds_voice_data_in_the_clear(store: Store, owner: Database) -> None:
    """Neither an upload, a recording nor an embedding, in any encoding of Postgres'; nor does a repr."""
    voice = await store.add_voice()
    await _replace(store, voice)
    async with owner.transaction() as connection:
        dump = str((await connection.execute(text("SELECT v::text FROM voice_versions v"))).all())
    for secret in (b"upload 2", b"recording 1", b"embedding 1"):
        assert secret.hex() not in dump
        assert secret.decode() not in dump
    assert "embedding" not in repr(enrolled(1))


async def test_an_embedding_that_was_moved_does_not_open(store: Store, owner: Database) -> None:
    """Neither to another voice, nor to another version of the same, nor into another column."""
    first, second = await store.add_voice(), await store.add_voice()
    await _replace(store, first)
    await store.complete(first, 2)
    for moved in (
        "UPDATE voice_versions SET embedding = recording WHERE voice_id = :second",
        "UPDATE voice_versions SET embedding = (SELECT embedding FROM voice_versions"
        " WHERE voice_id = :first AND version = 2) WHERE voice_id = :second",
        "UPDATE voice_versions SET version = 3 WHERE voice_id = :first AND version = 2",
    ):
        async with owner.transaction() as connection:
            await connection.execute(text(moved), {"first": first, "second": second})
    for voice, version in ((second, 1), (first, 3)):
        with pytest.raises(DecryptionError):
            async with store.open() as connection:
                await load_embedding(connection, store.keyring, store.tenant, voice, version)


async def test_a_replaced_voice_speaks_as_before_until_the_new_recording_is_enrolled(store: Store) -> None:
    """Then the version before it is retired, and what it held is wiped; its number and reason stay."""
    voice = await store.add_voice()
    before = await store.see(voice)
    replaced = await _replace(store, voice)
    assert replaced.latest is not None
    assert (replaced.state, replaced.version, replaced.latest.number) == (VoiceState.READY, 1, 2)
    assert replaced.revision == before.revision + 1
    async with store.open() as connection:
        assert await load_embedding(connection, store.keyring, store.tenant, voice, 1) == b"embedding 1"
        assert await load_embedding(connection, store.keyring, store.tenant, voice, 2) is None
    await store.complete(voice, 2)
    found = await store.see(voice)
    assert (found.version, found.consent_id == before.consent_id) == (2, False)
    async with store.open() as connection:
        assert await load_embedding(connection, store.keyring, store.tenant, voice, 1) is None
        assert await load_held(connection, store.keyring, Label(store.tenant, voice, Kind.RECORDING, 1)) is None
        assert await load_embedding(connection, store.keyring, store.tenant, voice, 2) == b"embedding 2"
        states = [version.state for version in await list_versions(connection, store.tenant, voice)]
    assert states == [VersionState.RETIRED, VersionState.READY]


async def test_a_replacement_that_fails_leaves_the_voice_as_it_was(store: Store) -> None:
    """The reason stays with the version, the upload goes, and another recording may be tried."""
    voice = await store.add_voice()
    await _replace(store, voice)
    await _fail(store, voice, 2)
    found = await store.see(voice)
    assert found.latest is not None
    assert (found.state, found.version, found.latest.number) == (VoiceState.READY, 1, 2)
    assert (found.latest.error_code, found.latest.error_message) == tuple(REASON.values())
    async with store.open() as connection:
        assert await load_upload(connection, store.keyring, store.tenant, voice, 2) is None
        assert await load_embedding(connection, store.keyring, store.tenant, voice, 1) == b"embedding 1"
    await _replace(store, voice)
    await store.complete(voice, 3)
    assert (await store.see(voice)).version == 3


async def test_a_first_recording_that_fails_leaves_no_key_and_a_second_chance(store: Store) -> None:
    """A voice that never spoke has nothing left to open; a new recording comes under a new key and its own consent."""
    voice = await store.add_voice(VoiceState.PENDING)
    await _fail(store, voice, 1)
    async with store.open() as connection:
        assert await store.keyring.load_data_key(connection, store.tenant, voice) is None
    assert (await store.see(voice)).state is VoiceState.FAILED
    again = await _replace(store, voice)
    assert (again.state, again.version) == (VoiceState.PENDING, 0)
    assert again.consent_id != (await store.add_consent())
    await store.complete(voice, 2)
    assert ((found := await store.see(voice)).state, found.version) == (VoiceState.READY, 2)


async def test_a_voice_that_is_disabled_while_it_is_replaced_stays_so(store: Store) -> None:
    """The new version is enrolled and speaks when the voice is enabled; failing changes nothing either."""
    voice = await store.add_voice()
    await _replace(store, voice)
    async with store.open() as connection:
        await disable_voice(connection, store.tenant, voice)
    await store.complete(voice, 2)
    assert ((found := await store.see(voice)).state, found.version) == (VoiceState.DISABLED, 2)
    async with store.open() as connection:
        assert await load_embedding(connection, store.keyring, store.tenant, voice, 2) is None
        await enable_voice(connection, store.tenant, voice)
        assert await load_embedding(connection, store.keyring, store.tenant, voice, 2) == b"embedding 2"
        await disable_voice(connection, store.tenant, voice)
    await _replace(store, voice)
    await _fail(store, voice, 3)
    assert (await store.see(voice)).state is VoiceState.DISABLED


async def test_a_recording_comes_under_a_consent_in_force_alone(store: Store) -> None:
    """None for one that is withdrawn or unknown, and the voice is as it was."""
    voice, consent = await store.add_voice(), await store.add_consent()
    before = await store.see(voice)
    async with store.open() as connection:
        await end_consent(connection, store.tenant, consent, ConsentState.WITHDRAWN)
        for named in (consent, uuid4()):
            given = {"consent": named, "upload": b"upload 2"}
            assert await add_version(connection, store.keyring, store.tenant, voice, **given) is None  # type: ignore[arg-type]
    assert await store.see(voice) == before


@pytest.mark.parametrize("version", [0, 2, 3])
async def test_a_version_that_does_not_wait_is_neither_completed_nor_failed(store: Store, version: int) -> None:
    """One that is enrolled, was never there, or failed."""
    voice = await store.add_voice()
    await _replace(store, voice)
    await _fail(store, voice, 2)
    with pytest.raises(IllegalTransition, match="version"):
        await store.complete(voice, version)
    with pytest.raises(IllegalTransition, match="version"):
        await _fail(store, voice, version)


async def test_of_two_replacements_at_once_one_is_taken(store: Store, meet: Meet) -> None:
    """The second waits, and is told that a recording waits already."""
    voice, consent = await store.add_voice(), await store.add_consent()
    step = partial(
        add_version, keyring=store.keyring, tenant=store.tenant, voice_id=voice, consent=consent, upload=b"upload 2"
    )
    taken, refused = await meet(store, step, step)
    assert isinstance(taken, Voice)
    assert isinstance(refused, IllegalTransition)
    assert (await store.see(voice)).latest == taken.latest


async def test_a_deletion_and_an_enrolments_end_meet_in_either_order(store: Store, meet: Meet) -> None:
    """An enrolment that ends after the deletion began brings nothing back; one that ends before is deleted with it."""

    async def delete(connection: AsyncConnection) -> object:
        await begin_deletion(connection, store.tenant, voice)
        return await finish_deletion(connection, store.tenant, voice)

    async def complete(connection: AsyncConnection) -> None:
        await complete_enrolment(connection, store.keyring, store.tenant, voice, 1, enrolled(1))

    async def fail(connection: AsyncConnection) -> None:
        await fail_enrolment(connection, store.tenant, voice, 1, **REASON)

    for end in (complete, fail):
        voice = await store.add_voice(VoiceState.PENDING)
        _, refused = await meet(store, delete, end)
        assert isinstance(refused, IllegalTransition)
        voice = await store.add_voice(VoiceState.PENDING)
        await meet(store, end, delete)
        async with store.open() as connection:
            assert await store.keyring.load_data_key(connection, store.tenant, voice) is None
            assert await list_versions(connection, store.tenant, voice) == []


async def test_a_deletion_that_began_withholds_the_upload(store: Store) -> None:
    """What waits for an enrolment is neither claimed, loaded nor listed any more."""
    voice = await store.add_voice(VoiceState.PENDING)
    soon = datetime.now(UTC) + timedelta(minutes=1)
    async with store.open() as connection:
        assert await list_enrolments_under_way(connection, store.tenant, soon, 9) == [(voice, 1)]
        await begin_deletion(connection, store.tenant, voice)
        assert await load_upload(connection, store.keyring, store.tenant, voice, 1) is None
        assert await claim_enrolment(connection, store.tenant, voice, 1, LEASE_S) is False
        assert await list_enrolments_under_way(connection, store.tenant, soon, 9) == []


async def test_an_enrolment_is_one_claimants_until_its_lease_ends(store: Store, meet: Meet, owner: Database) -> None:
    """Of two at once one gets it; after the lease another may, and once it has ended nobody."""
    voice = await store.add_voice(VoiceState.PENDING)
    claim = partial(claim_enrolment, tenant=store.tenant, voice_id=voice, version=1, lease_s=LEASE_S)
    assert await meet(store, claim, claim) == (True, False)
    soon = datetime.now(UTC) + timedelta(minutes=1)
    async with store.open() as connection:
        assert await list_enrolments_under_way(connection, store.tenant, soon, 9) == []
    async with owner.transaction() as connection:
        await connection.execute(text("UPDATE voice_versions SET claimed_until = now()"))
    async with store.open() as connection:
        assert await list_enrolments_under_way(connection, store.tenant, soon, 9) == [(voice, 1)]
        assert await list_enrolments_under_way(connection, store.tenant, soon - timedelta(hours=1), 9) == []
        assert await claim(connection)
    await store.complete(voice, 1)
    async with store.open() as connection:
        assert await claim_enrolment(connection, store.tenant, voice, 1, LEASE_S) is False
        assert await claim_enrolment(connection, store.tenant, uuid4(), 1, LEASE_S) is False


async def test_a_stage_is_told_of_what_waits_alone(store: Store) -> None:
    """An enrolment that comes too late does not change what ended."""
    voice = await store.add_voice(VoiceState.PENDING)
    async with store.open() as connection:
        await report_stage(connection, store.tenant, voice, 1, "decoding")
    latest = (await store.see(voice)).latest
    assert latest is not None
    assert latest.stage == "decoding"
    await store.complete(voice, 1)
    async with store.open() as connection:
        await report_stage(connection, store.tenant, voice, 1, "embedding")
        assert [version.stage for version in await list_versions(connection, store.tenant, voice)] == ["ended"]
