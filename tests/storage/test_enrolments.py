"""storage.voices.enrolments and storage.streams.tries."""

from __future__ import annotations

from uuid import UUID, uuid4

from sqlalchemy import select, update

from storage.database import Database
from storage.redis import connect
from storage.settings import Settings
from storage.streams.tries import count_try, discount_try, may_send_again
from storage.tables import voice_versions
from storage.voices.enrolments import Waiting, find_waiting, release_enrolment, wipe_uploads
from storage.voices.versions import claim_enrolment, fail_enrolment
from storage.voices.voices import begin_deletion
from tests.conftest import MakeTenant, MakeVoice


async def find(database: Database, tenant: UUID, voice: UUID) -> Waiting | None:
    async with database.transaction(tenant=tenant) as connection:
        return await find_waiting(connection, tenant, voice, 1)


async def claim(database: Database, tenant: UUID, voice: UUID, seconds: float = 3600) -> bool:
    async with database.transaction(tenant=tenant) as connection:
        return await claim_enrolment(connection, tenant, voice, 1, seconds)


async def test_what_waits_is_found_with_its_consent_until_it_ends_or_its_voice_goes(
    database: Database, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """A ready, a refused and a going one wait no more, and another tenant's is not there."""
    tenant, other = (await make_tenant("acme")).id, (await make_tenant("umbrella")).id
    voice, going, failed = [await make_voice(tenant) for _ in range(3)]
    ready = await make_voice(tenant, embedding=bytes(1024))
    async with database.transaction(tenant=tenant) as connection:
        assert await begin_deletion(connection, tenant, going)
        await fail_enrolment(connection, tenant, failed, 1, code="recording_silent", message="silent")
        query = select(voice_versions.c.consent_id).where(voice_versions.c.voice_id == voice)
        consent = (await connection.execute(query)).scalar_one()
    found = await find(database, tenant, voice)
    assert found is not None and (found.consent_id, found.claimed_until) == (consent, None)
    assert [await find(database, tenant, gone) for gone in (going, failed, ready)] == [None, None, None]
    assert await find(database, other, voice) is None


async def test_a_claim_is_released_by_whoever_has_it(
    database: Database, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """One that has ended, and was followed by another's, releases nothing."""
    tenant = (await make_tenant("acme")).id
    voice = await make_voice(tenant)
    assert await claim(database, tenant, voice, 0.0)
    earlier = await find(database, tenant, voice)
    assert await claim(database, tenant, voice)
    present = await find(database, tenant, voice)
    assert earlier is not None and present is not None
    for claimed, free in ((earlier, False), (present, True)):
        async with database.transaction(tenant=tenant) as connection:
            await release_enrolment(connection, tenant, voice, 1, claimed.claimed_until)
        assert await claim(database, tenant, voice) is free


async def test_uploads_are_wiped_where_nothing_waits_for_them(
    database: Database, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """A pending version keeps its own, and another tenant's are not touched."""
    tenant, other = (await make_tenant("acme")).id, (await make_tenant("umbrella")).id
    waiting, ended, foreign = await make_voice(tenant), await make_voice(tenant), await make_voice(other)
    for owner, voice in ((tenant, ended), (other, foreign)):
        async with database.transaction(tenant=owner) as connection:
            await fail_enrolment(connection, owner, voice, 1, code="recording_silent", message="silent")
            left = update(voice_versions).where(voice_versions.c.voice_id == voice)
            await connection.execute(left.values(upload=b"left over"))
    async with database.transaction(tenant=tenant) as connection:
        assert await wipe_uploads(connection, tenant) == 1
        kept = select(voice_versions.c.voice_id).where(voice_versions.c.upload.is_not(None))
        assert (await connection.execute(kept)).scalars().all() == [waiting]
    async with database.transaction(tenant=other) as connection:
        assert (await connection.execute(kept)).scalars().all() == [foreign]


async def test_tries_are_counted_for_each_version(settings: Settings) -> None:
    """One that was not the recording's fault is taken back."""
    client, voice = connect(settings.redis_url), uuid4()
    assert [await count_try(client, voice, 1) for _ in range(3)] == [1, 2, 3]
    await discount_try(client, voice, 1)
    assert await count_try(client, voice, 1) == 3
    assert await count_try(client, voice, 2) == 1
    await client.aclose()


async def test_lost_work_is_sent_again_once_in_a_while(settings: Settings) -> None:
    """Each piece of work for itself."""
    client = connect(settings.redis_url)
    assert [await may_send_again(client, "one", 300) for _ in range(2)] == [True, False]
    assert await may_send_again(client, "another", 300)
    await client.aclose()
