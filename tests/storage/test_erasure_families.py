"""storage.evidence.erasure, over real servers: consents with their voices, and whole tenants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import date
from typing import Any
from uuid import UUID

import pytest
from redis.asyncio import Redis
from sqlalchemy import func, select

from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.evidence.audit import read_audit
from storage.evidence.deletions import Deletion, ObjectKind, Outcome, Reason, Request, list_deletions, request_deletion
from storage.evidence.erasure import Erasure
from storage.evidence.receipts import verify_receipt
from storage.evidence.signing import load_public_keys
from storage.paging import Page
from storage.redis import connect, silenced_key
from storage.settings import Settings
from storage.states import ConsentState, DeletionState, TenantState
from storage.streams.broadcasts import Revocations
from storage.tables import api_keys, consents, data_keys, idempotency_keys, tenant_keys, usage, voice_aliases
from storage.tenancy.api_keys import authenticate, find_ends
from storage.tenancy.idempotency import begin
from storage.tenancy.tenants import create_tenant, find_tenant
from storage.tenancy.usage import Usage, add_usage
from storage.voices.aliases import set_alias
from storage.voices.consents import Statement, Terms, end_consent, find_consent, grant_consent, load_statement
from storage.voices.versions import Enrolled, complete_enrolment, load_embedding
from storage.voices.voices import create_voice, find_speaker, find_voice
from tests.conftest import MakeTenant, MakeVoice, Tenant

RAW = bytes(range(256)) * 4
TERMS = Terms("1", "en", "voice cloning", None)


@pytest.fixture
async def redis(settings: Settings) -> AsyncIterator[Redis]:
    client = connect(settings.redis_url)
    yield client
    await client.aclose()


@pytest.fixture
def erasure(database: Database, redis: Redis, keyring: Keyring) -> Erasure:
    return Erasure(database, redis, keyring)


@pytest.fixture
async def acme(make_tenant: MakeTenant) -> Tenant:
    return await make_tenant("acme")


async def _request(database: Database, tenant: UUID, kind: ObjectKind, wanted: UUID, reason: Reason) -> Deletion:
    async with database.transaction(tenant=tenant) as connection:
        found = await request_deletion(connection, tenant, Request(kind, wanted, reason, "key:test", "127.0.0.1"))
    assert found is not None
    return found


async def _make_family(database: Database, keyring: Keyring, tenant: UUID, count: int) -> tuple[UUID, list[UUID]]:
    """A consent with a spoken recording, and ready voices that hang on it."""
    made = []
    async with database.transaction(tenant=tenant) as connection:
        statement = Statement("A. Person", "I agree.")
        consent = await grant_consent(connection, keyring, tenant, TERMS, statement, recording=b"spoken")
        for number in range(count):
            name = f"voice {number}"
            voice = await create_voice(connection, keyring, tenant, name=name, consent=consent.id, upload=b"upload")
            assert voice is not None
            await complete_enrolment(connection, keyring, tenant, voice.id, 1, Enrolled(b"recording", RAW, 6.0, 90, {}))
            made.append(voice.id)
    return consent.id, made


async def _count(database: Database, tenant: UUID, table: Any, *where: Any) -> int:
    async with database.transaction(tenant=tenant) as connection:
        return int((await connection.execute(select(func.count()).select_from(table).where(*where))).scalar_one())


async def test_with_a_consent_go_its_voices_and_no_others(
    database: Database, keyring: Keyring, redis: Redis, erasure: Erasure, acme: Tenant, make_voice: MakeVoice
) -> None:
    """Each voice has a receipt, the consent one of its own, and nothing that was sealed can be opened."""
    neighbour = await make_voice(acme.id, embedding=RAW)
    consent, voices = await _make_family(database, keyring, acme.id, 3)
    requested = await _request(database, acme.id, ObjectKind.CONSENT, consent, Reason.WITHDRAWN)
    async with database.transaction(tenant=acme.id) as connection:
        assert [await find_speaker(connection, acme.id, str(voice)) for voice in voices] == [None] * 3
        assert await load_embedding(connection, keyring, acme.id, voices[0], 1) is None
    done = await erasure.run(acme.id, requested.id)
    assert done.state is DeletionState.DONE
    assert {name: report.count for name, report in done.stores.items()} == {
        "speech": 3,
        "keys": 4,
        "voices": 3,
        "rows": 1,
        "idempotency": 0,
    }
    async with database.transaction(tenant=acme.id) as connection:
        assert await find_consent(connection, acme.id, consent) is None
        assert await load_statement(connection, keyring, acme.id, consent) is None
        assert await find_voice(connection, acme.id, neighbour) is not None
        listed = (await list_deletions(connection, acme.id, Page())).items
        keys = await load_public_keys(connection)
        row = (await connection.execute(select(consents).where(consents.c.id == consent))).one()
        actions = [entry.action for entry in await read_audit(connection, acme.id)]
    assert (row.state, row.sealed, row.recording) == (ConsentState.DELETED, None, None)
    assert {deletion.object_id for deletion in listed} == {consent, *voices}
    for deletion in listed:
        assert deletion.reason is Reason.WITHDRAWN
        assert verify_receipt(deletion.receipt or "", keys).object.matches(deletion.object_id)
    assert actions.count("consent.withdrawn") == actions.count("consent.deleted") == 1
    assert actions.count("voice.deleted") == 3
    assert await redis.exists(*map(silenced_key, voices)) == 3


async def test_a_consent_that_was_ended_before_is_deleted_without_ending_it_twice(
    database: Database, keyring: Keyring, erasure: Erasure, acme: Tenant
) -> None:
    """Whoever ended it has put that on record; its voices go all the same."""
    consent, voices = await _make_family(database, keyring, acme.id, 1)
    async with database.transaction(tenant=acme.id) as connection:
        assert (await end_consent(connection, acme.id, consent, ConsentState.EXPIRED)).voices == voices
    requested = await _request(database, acme.id, ObjectKind.CONSENT, consent, Reason.EXPIRED)
    assert (await erasure.run(acme.id, requested.id)).state is DeletionState.DONE
    async with database.transaction(tenant=acme.id) as connection:
        actions = [entry.action for entry in await read_audit(connection, acme.id)]
    assert "consent.expired" not in actions
    assert "consent.deleted" in actions


async def test_with_little_time_the_keys_are_gone_and_the_next_attempts_go_on(
    database: Database, keyring: Keyring, erasure: Erasure, acme: Tenant
) -> None:
    """However many voices there are: none can be opened after the first attempt, and none is forgotten."""
    consent, voices = await _make_family(database, keyring, acme.id, 6)
    requested = await _request(database, acme.id, ObjectKind.CONSENT, consent, Reason.REQUESTED)
    partial = await erasure.run(acme.id, requested.id, within_s=0.0)
    assert partial.state is DeletionState.PARTIAL
    assert partial.stores["voices"].outcome is Outcome.PENDING
    assert await _count(database, acme.id, data_keys, data_keys.c.owner_id.in_([consent, *voices])) == 0
    assert partial.stores["rows"].outcome is Outcome.PENDING
    for _ in range(20):
        partial = await erasure.run(acme.id, requested.id, within_s=1.0)
        if partial.state is DeletionState.DONE:
            break
    assert partial.state is DeletionState.DONE
    assert partial.stores["voices"].count == 6


async def test_with_a_tenant_goes_everything_but_what_was_counted_and_recorded(
    database: Database, keyring: Keyring, erasure: Erasure, acme: Tenant, make_voice: MakeVoice, make_tenant: MakeTenant
) -> None:
    """Voices, consents, keys, aliases and requests go; counts, audit log and receipts stay, and the name is free."""
    other = await make_tenant("other")
    untouched = await make_voice(other.id, embedding=RAW)
    consent, voices = await _make_family(database, keyring, acme.id, 2)
    async with database.transaction(tenant=acme.id) as connection:
        await set_alias(connection, acme.id, "narrator", voices[0])
        await begin(connection, keyring, acme.id, "k1", b"body")
        await add_usage(connection, acme.id, [Usage(date(2026, 1, 1), voices[0], 1, 2, 3, 4)])
    requested = await _request(database, acme.id, ObjectKind.TENANT, acme.id, Reason.REQUESTED)
    caller = await authenticate(database, acme.key)
    assert caller is not None
    assert caller.tenant_state is TenantState.DELETING
    done = await erasure.run(acme.id, requested.id, within_s=30.0)
    assert done.state is DeletionState.DONE
    assert (done.stores["voices"].count, done.stores["consents"].count) == (2, 1)
    assert await authenticate(database, acme.key) is None
    for table in (data_keys, tenant_keys, voice_aliases, idempotency_keys):
        assert await _count(database, acme.id, table) == 0
    assert await _count(database, acme.id, api_keys, api_keys.c.revoked_at.is_(None)) == 0
    assert await _count(database, acme.id, usage) == 1
    async with database.transaction(tenant=acme.id) as connection:
        found = await find_tenant(connection, acme.id)
        listed = (await list_deletions(connection, acme.id, Page())).items
        actions = [entry.action for entry in await read_audit(connection, acme.id)]
        assert verify_receipt(done.receipt or "", await load_public_keys(connection)).object.matches(acme.id)
    assert found is not None
    assert found.state is TenantState.DELETED
    assert {deletion.object_id for deletion in listed} == {acme.id, consent, *voices}
    assert actions[-1] == "tenant.deleted"
    async with database.transaction(operator=True) as connection:
        await create_tenant(connection, "acme")
    async with database.transaction(tenant=other.id) as connection:
        assert await load_embedding(connection, keyring, other.id, untouched, 1) == RAW


async def test_relays_hear_of_a_tenants_keys(
    database: Database, redis: Redis, erasure: Erasure, acme: Tenant, make_tenant: MakeTenant
) -> None:
    """Keys that only speak or enrol end with the request; one that may look ends with the deletion."""
    speaking = await make_tenant("acme", scopes=("speak",))
    requested = await _request(database, acme.id, ObjectKind.TENANT, acme.id, Reason.REQUESTED)
    assert set(await find_ends(database, [acme.key_id, speaking.key_id])) == {acme.key_id}
    async with asyncio.timeout(20), aclosing(Revocations(redis).listen()) as listening:
        assert await anext(listening) is None
        assert (await erasure.run(acme.id, requested.id)).state is DeletionState.DONE
        heard = {await anext(listening) for _ in range(4)}
    assert heard == {acme.key_id, speaking.key_id}
    assert set(await find_ends(database, [acme.key_id, speaking.key_id])) == set()
