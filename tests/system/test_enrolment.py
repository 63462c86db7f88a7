"""Enrolment by the real Celery: what it makes, and what is left when the voice or its consent changes in the middle."""

from __future__ import annotations

import asyncio
from uuid import UUID

import numpy as np
import pytest
import redis

from storage.evidence.audit import read_audit
from storage.evidence.deletions import ObjectKind, Reason, Request, request_deletion
from storage.evidence.erasure import Erasure
from storage.redis import connect, tries_key
from storage.states import DeletionState, VersionState, VoiceState
from storage.voices.versions import add_version
from tests.conftest import wait_until
from tests.system.enrolling import DEADLINE_S, UPLOAD, Enrolling, MakeEnrolling
from worker.enrolment.stages import Stage


async def test_a_recording_becomes_a_voice(start_enrolling: MakeEnrolling) -> None:
    """It has a voiceprint of unit norm and a quality, and the audit log says who made it."""
    enrolling = await start_enrolling()
    voice = await enrolling.begin()
    await enrolling.check_enrolled_once(voice)
    _, latest = await enrolling.end(voice)
    embedding = np.frombuffer(await enrolling.embedding(voice) or b"", "<f4")
    assert embedding.shape == (256,)
    assert np.linalg.norm(embedding) == pytest.approx(1, abs=1e-5)
    assert latest.quality is not None and 0 <= latest.quality <= 100
    assert latest.quality_parts is not None and {"snr_db", "unity"} <= set(latest.quality_parts)
    async with enrolling.database.transaction(tenant=enrolling.tenant) as connection:
        (entry,) = await read_audit(connection, enrolling.tenant, action="voice.enrolled")
    assert (entry.actor, entry.origin) == ("system:enrolment", "celery")
    assert entry.detail == {"version": 1, "quality": latest.quality, "duration_s": pytest.approx(latest.duration_s)}


async def test_a_recording_that_cannot_be_used_is_refused_and_destroyed(start_enrolling: MakeEnrolling) -> None:
    """The reason stands with the version and in the audit log; upload and key are gone."""
    enrolling = await start_enrolling()
    voice = await enrolling.begin(UPLOAD[:4000])
    found, latest = await enrolling.end(voice)
    assert (found.state, latest.state) == (VoiceState.FAILED, VersionState.FAILED)
    assert latest.error_code is not None and latest.error_code.startswith("recording_")
    assert latest.error_message
    async with enrolling.database.transaction(tenant=enrolling.tenant) as connection:
        (entry,) = await read_audit(connection, enrolling.tenant, action="voice.rejected", object_id=str(voice))
    assert entry.detail == {"version": 1, "code": latest.error_code}
    assert enrolling.rows.execute("SELECT upload FROM voice_versions").fetchall() == [(None,)]
    assert enrolling.rows.execute("SELECT 1 FROM keyring.data_keys WHERE owner_id = %s", (voice,)).fetchall() == []


async def test_a_message_that_is_delivered_again_and_again_enrols_once(start_enrolling: MakeEnrolling) -> None:
    """While one works on it the others wait, and afterwards there is nothing left to do."""
    enrolling = await start_enrolling()
    voice = await enrolling.make_voice(enrolling.tenant, upload=UPLOAD)
    for _ in range(5):
        enrolling.send(voice)
    await enrolling.check_enrolled_once(voice)
    log = enrolling.stack.log
    await asyncio.to_thread(wait_until, lambda: log.read_text().count('"outcome": "gone"') == 4, DEADLINE_S)
    await enrolling.check_enrolled_once(voice)
    with redis.Redis.from_url(enrolling.settings.redis_url) as client:
        assert client.get(tries_key(voice, 1)) == b"1"


async def test_a_voice_deleted_during_its_enrolment_is_gone(start_enrolling: MakeEnrolling) -> None:
    """The enrolment finds nothing to complete, and the deletion ends in a receipt."""
    enrolling = await start_enrolling()
    voice = await enrolling.begin_until(Stage.DECODING)
    deletion = await _request(enrolling, ObjectKind.VOICE, voice, Reason.REQUESTED)
    await _erase(enrolling, deletion)
    assert await enrolling.find(voice) is None
    assert enrolling.rows.execute("SELECT 1 FROM voice_versions WHERE voice_id = %s", (voice,)).fetchall() == []
    assert await enrolling.count("voice.enrolled", voice) == 0
    assert await enrolling.count("voice.deleted", voice) == 1


async def test_a_consent_withdrawn_during_an_enrolment_leaves_no_voice(start_enrolling: MakeEnrolling) -> None:
    """What was made of the recording is not kept, and the voice goes with its consent."""
    enrolling = await start_enrolling()
    voice = await enrolling.begin_until(Stage.DECODING)
    found = await enrolling.find(voice)
    assert found is not None
    deletion = await _request(enrolling, ObjectKind.CONSENT, found.consent_id, Reason.WITHDRAWN)
    await _erase(enrolling, deletion)
    assert await enrolling.find(voice) is None
    assert await enrolling.embedding(voice) is None
    assert await enrolling.count("voice.enrolled", voice) == 0


async def test_a_consent_that_ran_out_during_an_enrolment_leaves_no_voiceprint(start_enrolling: MakeEnrolling) -> None:
    """Also before anybody has noticed: the recording is refused at the end, with the reason."""
    enrolling = await start_enrolling()
    voice = await enrolling.begin_until(Stage.DECODING)
    enrolling.rows.execute("UPDATE consents SET expires_at = now()")
    found, latest = await enrolling.end(voice)
    assert (found.state, latest.error_code) == (VoiceState.FAILED, "consent_ended")
    assert enrolling.rows.execute("SELECT embedding FROM voice_versions").fetchall() == [(None,)]


async def test_a_voice_disabled_during_an_enrolment_stays_disabled(start_enrolling: MakeEnrolling) -> None:
    """A replacement that is ready afterwards does not make it speak."""
    enrolling = await start_enrolling()
    voice = await enrolling.begin()
    await enrolling.check_enrolled_once(voice)
    found = await enrolling.find(voice)
    assert found is not None
    async with enrolling.database.transaction(tenant=enrolling.tenant) as connection:
        given = {"consent": found.consent_id, "upload": UPLOAD}
        assert await add_version(connection, enrolling.keyring, enrolling.tenant, voice, **given)  # type: ignore[arg-type]
    with enrolling.holding(voice) as other:
        enrolling.send(voice, 2)
        assert enrolling.reach(voice, Stage.STORING, 2)
        # In the transaction that holds the voice, so before the enrolment's end.
        other.execute("UPDATE voices SET state = 'disabled', revision = revision + 1 WHERE id = %s", (voice,))
    found, latest = await enrolling.end(voice)
    assert (found.state, found.version, latest.state) == (VoiceState.DISABLED, 2, VersionState.READY)
    assert await enrolling.embedding(voice, 2) is None


async def _request(enrolling: Enrolling, kind: ObjectKind, object_id: UUID, reason: Reason) -> UUID:
    request = Request(kind, object_id, reason, "system:test", "cli")
    async with enrolling.database.transaction(tenant=enrolling.tenant) as connection:
        deletion = await request_deletion(connection, enrolling.tenant, request)
    assert deletion is not None
    return deletion.id


async def _erase(enrolling: Enrolling, deletion_id: UUID) -> None:
    """Attempts until it is done."""
    client = connect(enrolling.settings.redis_url)
    erasure = Erasure(enrolling.database, client, enrolling.keyring)
    for _ in range(int(DEADLINE_S)):
        deletion = await erasure.run(enrolling.tenant, deletion_id)
        if deletion.state is DeletionState.DONE:
            break
        await asyncio.sleep(0.5)
    await client.aclose()
    assert deletion.receipt, deletion
