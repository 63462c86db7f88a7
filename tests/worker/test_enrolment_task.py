"""worker.enrolment.task: what it decides, with the real database, models and recordings, without Celery."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from celery.exceptions import SoftTimeLimitExceeded
from pydantic import SecretStr
from redis.asyncio import Redis
from sqlalchemy import update

from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.errors import RootKeyError, ServerUnavailable
from storage.redis import connect, tries_key
from storage.settings import Settings
from storage.states import VersionState, VoiceState
from storage.tables import voice_versions
from storage.voices.consents import Statement, Terms, grant_consent
from storage.voices.enrolments import find_waiting
from storage.voices.records import Version, Voice
from storage.voices.versions import claim_enrolment
from storage.voices.voices import create_voice, find_voice
from tests.conftest import MakeTenant
from worker.enrolment.task import LONGEST_WAIT, MOST_TRIES, Enrolment, Target, choose_countdown
from worker.errors import BundleError, EnrolmentTaken

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
LOW, HIGH = ((SAMPLES / f"reference-{name}.wav").read_bytes() for name in ("low", "high"))
EMPTY = SecretStr("")
TERMS = Terms("2026-01", "en", "voice cloning", None)

MakeTarget = Callable[..., Awaitable[Target]]


@pytest.fixture
def make_target(database: Database, keyring: Keyring, make_tenant: MakeTenant) -> MakeTarget:
    """`await make_target(consent=HIGH)`: a pending version of LOW, by a consent that was spoken."""

    async def make(*, consent: bytes | None = None) -> Target:
        tenant = (await make_tenant("acme")).id
        async with database.transaction(tenant=tenant) as connection:
            statement = Statement("A. Person", "I agree.")
            granted = await grant_consent(connection, keyring, tenant, TERMS, statement, recording=consent)
            voice = await create_voice(connection, keyring, tenant, name="demo", consent=granted.id, upload=LOW)
        assert voice is not None
        return Target(tenant, voice.id, 1)

    return make


async def enrol(settings: Settings, target: Target) -> str:
    """As Celery does it: from plain code, so in a thread without an event loop."""
    return await asyncio.to_thread(Enrolment(settings).enrol, target)


async def read(database: Database, target: Target) -> tuple[Voice, Version]:
    async with database.transaction(tenant=target.tenant) as connection:
        voice = await find_voice(connection, target.tenant, target.voice)
    assert voice is not None and voice.latest is not None
    return voice, voice.latest


async def count_tries(settings: Settings, target: Target) -> int:
    client: Redis = connect(settings.redis_url)
    found = await client.get(tries_key(target.voice, target.version))
    await client.aclose()
    return int(found or 0)


async def is_free(database: Database, target: Target) -> bool:
    """Whether the version waits and can be claimed."""
    async with database.transaction(tenant=target.tenant) as connection:
        return await claim_enrolment(connection, *target.names, 0.0)


async def test_a_spoken_consent_of_the_same_person_lets_the_voice_be(
    settings: Settings, database: Database, make_target: MakeTarget
) -> None:
    """The voice of the consent is compared with that of the sample."""
    target = await make_target(consent=LOW)
    assert await enrol(settings, target) == "ready"
    assert (await read(database, target))[0].state is VoiceState.READY


async def test_a_spoken_consent_of_somebody_else_makes_no_voice(
    settings: Settings, database: Database, make_target: MakeTarget
) -> None:
    """The recording is refused for the consent's speaker, and nothing of it is kept."""
    target = await make_target(consent=HIGH)
    assert await enrol(settings, target) == "consent_speaker_mismatch"
    voice, latest = await read(database, target)
    assert (voice.state, latest.error_code) == (VoiceState.FAILED, "consent_speaker_mismatch")


async def test_a_spoken_consent_that_cannot_be_compared_makes_no_voice(
    settings: Settings, database: Database, make_target: MakeTarget
) -> None:
    """The reason says that it is the consent's recording, and what is wrong with it."""
    target = await make_target(consent=b"no recording")
    assert await enrol(settings, target) == "consent_recording_unusable"
    message = (await read(database, target))[1].error_message
    assert message is not None and message.startswith("the spoken consent cannot be compared")


async def test_what_an_operator_has_to_mend_keeps_the_recording(
    settings: Settings, database: Database, make_target: MakeTarget, tmp_path: Path
) -> None:
    """With the bundle or the keys away the version waits, free for the next one, and the try does not count."""
    target = await make_target()
    with pytest.raises(BundleError):
        await enrol(settings.model_copy(update={"bundle": tmp_path}), target)
    with pytest.raises(RootKeyError):
        await enrol(settings.model_copy(update={"root_key_file": tmp_path / "none", "root_key": EMPTY}), target)
    with pytest.raises(ServerUnavailable):
        await enrol(settings.model_copy(update={"redis_url": "redis://127.0.0.1:1/0"}), target)
    assert (await read(database, target))[1].state is VersionState.PENDING
    assert await count_tries(settings, target) <= 0
    assert await is_free(database, target)
    assert await enrol(settings, target) == "ready"


async def test_a_recording_whose_processes_die_is_given_up(
    settings: Settings, database: Database, make_target: MakeTarget
) -> None:
    """After so many tries that were begun and not ended, as a killed process leaves them, it is refused."""
    target = await make_target()
    client: Redis = connect(settings.redis_url)
    await client.set(tries_key(target.voice, 1), MOST_TRIES)
    await client.aclose()
    assert await enrol(settings, target) == "enrolment_timeout"
    assert (await read(database, target))[1].state is VersionState.FAILED


async def test_a_recording_that_has_waited_for_a_day_is_given_up(
    settings: Settings, database: Database, make_target: MakeTarget
) -> None:
    """A person's recording does not wait for ever for somebody to mend the service."""
    target = await make_target()
    async with database.transaction(tenant=target.tenant) as connection:
        older = voice_versions.c.created_at - LONGEST_WAIT - timedelta(seconds=1)
        await connection.execute(update(voice_versions).values(created_at=older))
    assert await enrol(settings, target) == "enrolment_timeout"


async def test_a_version_that_another_has_is_left_to_it(
    settings: Settings, database: Database, make_target: MakeTarget
) -> None:
    """For as long as the claim lasts; afterwards it is anybody's."""
    target = await make_target()
    async with database.transaction(tenant=target.tenant) as connection:
        assert await claim_enrolment(connection, *target.names, 3600)
    with pytest.raises(EnrolmentTaken) as caught:
        await enrol(settings, target)
    assert 3500 < caught.value.wait_s <= 3600
    async with database.transaction(tenant=target.tenant) as connection:
        found = await find_waiting(connection, *target.names)
        await connection.execute(update(voice_versions).values(claimed_until=voice_versions.c.created_at))
    assert found is not None and found.claimed_until is not None
    assert await enrol(settings, target) == "ready"
    assert await enrol(settings, target) == "gone"


async def test_a_version_that_there_is_not_is_gone(settings: Settings, make_target: MakeTarget) -> None:
    """Neither another tenant's nor one that was never added is touched."""
    target = await make_target()
    other = UUID(int=7)
    for wrong in (Target(target.tenant, other, 1), Target(other, target.voice, 1), Target(*target.names[:2], 2)):
        assert await enrol(settings, wrong) == "gone"


@pytest.mark.parametrize(
    ("error", "retries", "expected"),
    [
        (ServerUnavailable("Postgres", "away"), 0, 1.0),
        (ServerUnavailable("Postgres", "away"), 3, 8.0),
        (ServerUnavailable("Postgres", "away"), 500, 15.0),
        (SoftTimeLimitExceeded(), 0, 1.0),
        (EnrolmentTaken("voice", 1, 4.0), 0, 4.1),
        (EnrolmentTaken("voice", 1, 35.0), 0, 15.0),
        (EnrolmentTaken("voice", 1, -2.0), 0, 0.1),
    ],
)
def test_what_is_put_off_comes_back_before_its_message_is_taken_for_lost(
    error: Exception, retries: int, expected: float
) -> None:
    """Later and later, or when another's claim ends, but never after half the time limit."""
    assert choose_countdown(error, retries, 30.0) == pytest.approx(expected)
