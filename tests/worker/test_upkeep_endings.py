"""worker.upkeep.endings."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Self
from uuid import UUID, uuid4

import pytest
from sqlalchemy import update

from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.evidence import audit
from storage.evidence.audit import read_audit
from storage.evidence.deletions import Deletion, Reason, list_deletions
from storage.evidence.receipts import verify_receipt
from storage.evidence.signing import load_public_keys
from storage.paging import Page
from storage.states import ConsentState, DeletionState
from storage.streams.speech_log import Spoken, note_spoken
from storage.tables import voices
from storage.tenancy.tenants import set_retention
from storage.voices.consents import Statement, Terms, find_consent, grant_consent
from storage.voices.versions import add_version, load_embedding
from storage.voices.voices import create_voice, find_voice
from tests.conftest import MakeTenant, MakeVoice
from worker.upkeep import rounds
from worker.upkeep.endings import delete_unused, expire_consents
from worker.upkeep.rounds import Tools

DAYS = 30
USED = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(tools: Tools, now: datetime) -> Tools:
    """The same tools with the clock at that time."""
    return replace(tools, clock=lambda: now)


async def use(database: Database, tenant: UUID, voice: UUID, when: datetime = USED) -> None:
    """Note that the voice was last used then."""
    async with database.transaction(tenant=tenant) as connection:
        await set_retention(connection, tenant, DAYS)
        await connection.execute(update(voices).where(voices.c.id == voice).values(last_used_at=when))


async def is_there(database: Database, tenant: UUID, voice: UUID) -> bool:
    async with database.transaction(tenant=tenant) as connection:
        return await find_voice(connection, tenant, voice) is not None


async def read_deletions(database: Database, tenant: UUID) -> tuple[Deletion, ...]:
    async with database.transaction(tenant=tenant) as connection:
        return (await list_deletions(connection, tenant, Page(100))).items


async def test_a_voice_unused_for_a_day_more_than_it_is_kept_is_deleted_with_a_receipt(
    tools: Tools, database: Database, keyring: Keyring, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """The reason stands in the receipt and in the audit log, and the voiceprint cannot be read any more."""
    tenant = (await make_tenant("acme")).id
    voice = await make_voice(tenant, embedding=bytes(1024))
    await use(database, tenant, voice)
    assert await delete_unused(at(tools, USED + timedelta(days=DAYS + 1))) == 1
    assert not await is_there(database, tenant, voice)
    (deletion,) = await read_deletions(database, tenant)
    assert (deletion.state, deletion.reason) == (DeletionState.DONE, Reason.UNUSED)
    assert deletion.receipt is not None
    async with database.transaction(tenant=tenant) as connection:
        receipt = verify_receipt(deletion.receipt, await load_public_keys(connection))
        (entry,) = await read_audit(connection, tenant, action="voice.deletion_requested")
        assert await load_embedding(connection, keyring, tenant, voice, 1) is None
    assert receipt.object.matches(voice)
    assert (entry.actor, entry.origin) == ("system:retention", "celery")


async def test_a_voice_unused_for_a_day_less_is_kept(
    tools: Tools, database: Database, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """Retention is counted from the last use, in the tenant's own number of days."""
    tenant, other = (await make_tenant("acme")).id, (await make_tenant("umbrella")).id
    voice, longer = await make_voice(tenant, embedding=bytes(1024)), await make_voice(other, embedding=bytes(1024))
    await use(database, tenant, voice)
    await use(database, other, longer)
    async with database.transaction(tenant=other) as connection:
        await set_retention(connection, other, DAYS + 10)
    assert await delete_unused(at(tools, USED + timedelta(days=DAYS - 1))) == 0
    assert await delete_unused(at(tools, USED + timedelta(days=DAYS + 1))) == 1
    assert [await is_there(database, tenant, voice), await is_there(database, other, longer)] == [False, True]


async def test_what_was_spoken_a_moment_ago_counts_as_use(
    tools: Tools, database: Database, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """Also while it stands in the speech log alone: the voice is kept."""
    tenant = (await make_tenant("acme")).id
    voice = await make_voice(tenant, embedding=bytes(1024))
    await use(database, tenant, voice)
    now = USED + timedelta(days=DAYS + 1)
    ended = int(now.timestamp() * 1000) - 1000
    await note_spoken(tools.redis, Spoken(tenant, voice, 1, uuid4(), "::1", "relay:1", 1, 10, 800, "", ended))
    assert await delete_unused(at(tools, now)) == 0
    assert await is_there(database, tenant, voice)


async def test_two_rounds_at_once_delete_each_voice_once(
    tools: Tools, database: Database, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """Whoever comes second to a duty leaves it to the first."""
    tenant = (await make_tenant("acme")).id
    for _ in range(3):
        await use(database, tenant, await make_voice(tenant, embedding=bytes(1024)))
    later = at(tools, USED + timedelta(days=DAYS + 1))
    assert sorted(await asyncio.gather(delete_unused(later), delete_unused(later))) == [0, 3]
    assert len(await read_deletions(database, tenant)) == 3


async def test_a_consent_whose_time_is_over_ends_with_its_voices(
    tools: Tools, database: Database, keyring: Keyring, make_tenant: MakeTenant
) -> None:
    """One that lasts longer, and its voice, stay."""
    tenant = (await make_tenant("acme")).id
    now = datetime.now(UTC)
    made = []
    async with database.transaction(tenant=tenant) as connection:
        for days in (1, 3):
            terms = Terms("2026-01", "en", "voice cloning", now + timedelta(days=days))
            consent = await grant_consent(connection, keyring, tenant, terms, Statement("A. Person", "I agree."))
            given = {"name": "demo", "consent": consent.id, "upload": b"upload"}
            voice = await create_voice(connection, keyring, tenant, **given)  # type: ignore[arg-type]
            assert voice is not None
            made.append((consent.id, voice.id))
    (short, its_voice), (long, other_voice) = made
    assert await expire_consents(at(tools, now)) == 0
    assert await expire_consents(at(tools, now + timedelta(days=2))) == 1
    assert not await is_there(database, tenant, its_voice)
    assert await is_there(database, tenant, other_voice)
    async with database.transaction(tenant=tenant) as connection:
        assert await find_consent(connection, tenant, short) is None
        kept = await find_consent(connection, tenant, long)
        (entry,) = await read_audit(connection, tenant, action="consent.expired")
    assert kept is not None and kept.state is ConsentState.ACTIVE
    assert (entry.actor, entry.object_id) == ("system:consent_expiry", str(short))
    assert {deletion.state for deletion in await read_deletions(database, tenant)} == {DeletionState.DONE}


async def test_recordings_whose_consent_expires_are_on_record_as_rejected(
    tools: Tools,
    database: Database,
    keyring: Keyring,
    make_tenant: MakeTenant,
    make_voice: MakeVoice,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All of them, however many the log takes at once; their voices go on by their own consents."""
    monkeypatch.setattr(audit, "ACTS_LIMIT", 2)
    tenant, now = (await make_tenant("acme")).id, datetime.now(UTC)
    made = [await make_voice(tenant, embedding=bytes(1024)) for _ in range(3)]
    terms = Terms("2026-11", "en", "voice cloning", now + timedelta(days=1))
    async with database.transaction(tenant=tenant) as connection:
        consent = await grant_consent(connection, keyring, tenant, terms, Statement("A. Person", "I agree."))
        for voice in made:
            await add_version(connection, keyring, tenant, voice, consent=consent.id, upload=b"upload")
    assert await expire_consents(at(tools, now + timedelta(days=2))) == 1
    async with database.transaction(tenant=tenant) as connection:
        entries = await read_audit(connection, tenant, action="voice.rejected")
    assert sorted(entry.object_id for entry in entries) == sorted(map(str, made))
    for entry in entries:
        assert (entry.actor, entry.origin) == ("system:consent_expiry", "celery")
        assert entry.detail == {"version": 2, "code": "consent_expired"}
    assert all([await is_there(database, tenant, voice) for voice in made])


async def test_a_machine_whose_clock_is_ahead_ends_nothing_before_its_time(
    tools: Tools,
    database: Database,
    keyring: Keyring,
    make_tenant: MakeTenant,
    make_voice: MakeVoice,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What cannot be undone is judged by the database's clock alone, by which consents are in force as well."""

    class Ahead(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return super().now(tz) + timedelta(days=2 * 365)

    tenant = (await make_tenant("acme")).id
    voice = await make_voice(tenant, embedding=bytes(1024))
    terms = Terms("2026-11", "en", "voice cloning", datetime.now(UTC) + timedelta(days=1))
    async with database.transaction(tenant=tenant) as connection:
        consent = await grant_consent(connection, keyring, tenant, terms, Statement("A. Person", "I agree."))
    monkeypatch.setattr(rounds, "datetime", Ahead)
    assert await delete_unused(tools) == 0
    assert await expire_consents(tools) == 0
    assert await is_there(database, tenant, voice)
    async with database.transaction(tenant=tenant) as connection:
        found = await find_consent(connection, tenant, consent.id)
    assert found is not None and found.state is ConsentState.ACTIVE
