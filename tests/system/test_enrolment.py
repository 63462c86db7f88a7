"""Enrolment by the real Celery: what it makes, and what is left when anything dies or changes in the middle of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import psycopg
import pytest
import redis
from psycopg import sql
from sqlalchemy import make_url

from storage.cold_jobs import KEY_PREFIX, make_celery, send_enrolment
from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.evidence.audit import read_audit
from storage.evidence.deletions import ObjectKind, Reason, Request, request_deletion
from storage.evidence.erasure import Erasure
from storage.redis import connect, tries_key
from storage.settings import Settings
from storage.states import DeletionState, VersionState, VoiceState
from storage.voices.records import Version, Voice
from storage.voices.versions import add_version, load_embedding
from storage.voices.voices import find_voice
from tests.conftest import MakeTenant, MakeVoice, RunningStack, StartStack, wait_until
from tests.system.conftest import SAMPLES
from worker.enrolment.stages import Stage

LIMIT_S = 6.0
"""The time limit of a task here: what was killed is back after nine seconds instead of 45."""
DEADLINE_S = 90.0
MOST_VOICES = 8
UPLOAD = SAMPLES["low"].read_bytes()


@dataclass(slots=True)
class Enrolling:
    """A running Celery, a tenant, and the tables as that tenant sees them."""

    stack: RunningStack
    settings: Settings
    database: Database
    keyring: Keyring
    tenant: UUID
    make_voice: Callable[..., Awaitable[UUID]]
    rows: psycopg.Connection[tuple[Any, ...]]

    async def begin(self, upload: bytes = UPLOAD) -> UUID:
        """A pending voice whose enrolment was asked for."""
        voice: UUID = await self.make_voice(self.tenant, upload=upload)
        self.send(voice)
        return voice

    def send(self, voice: UUID, version: int = 1) -> None:
        send_enrolment(make_celery(self.settings), self.tenant, voice, version)

    def reach(self, voice: UUID, stage: Stage, version: int = 1) -> bool:
        """Returns when the version's enrolment is in that stage; False when it had passed it unseen."""
        query = "SELECT state, stage FROM voice_versions WHERE voice_id = %s AND version = %s"
        found: list[str] = []

        def there() -> bool:
            state, now = self.rows.execute(query, (voice, version)).fetchone() or ("gone", "")
            found[:] = [now]
            return bool(now == stage or state != VersionState.PENDING)

        wait_until(there, DEADLINE_S)
        return found == [stage]

    async def begin_until(self, stage: Stage) -> UUID:
        """A voice whose enrolment is in that stage at this moment."""
        for _ in range(MOST_VOICES):
            voice = await self.begin()
            if self.reach(voice, stage):
                return voice
        raise AssertionError(f"of {MOST_VOICES} enrolments none was seen in the stage {stage}")

    async def find(self, voice: UUID) -> Voice | None:
        async with self.database.transaction(tenant=self.tenant) as connection:
            return await find_voice(connection, self.tenant, voice)

    async def end(self, voice: UUID) -> tuple[Voice, Version]:
        """The voice when its newest version waits no more."""
        for _ in range(int(DEADLINE_S * 20)):
            found = await self.find(voice)
            assert found is not None and found.latest is not None
            if found.latest.state is not VersionState.PENDING:
                return found, found.latest
            await asyncio.sleep(0.05)
        raise AssertionError(f"not enrolled in {DEADLINE_S} s: {found}\n{self.stack.log.read_text()[-4000:]}")

    async def count(self, action: str, voice: UUID) -> int:
        """How often that stands in the audit log."""
        async with self.database.transaction(tenant=self.tenant) as connection:
            return len(await read_audit(connection, self.tenant, action=action, object_id=str(voice)))

    async def embedding(self, voice: UUID, version: int = 1) -> bytes | None:
        async with self.database.transaction(tenant=self.tenant) as connection:
            return await load_embedding(connection, self.keyring, self.tenant, voice, version)

    @contextlib.contextmanager
    def holding(self, voice: UUID) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        """Nobody else changes the voice meanwhile: its enrolment comes as far as STORING and stays there."""
        with _open_as(self.settings, self.tenant) as other, other.transaction():
            other.execute("SELECT 1 FROM voices WHERE id = %s FOR UPDATE", (voice,))
            yield other

    async def check_enrolled_once(self, voice: UUID) -> None:
        """Ready, on record once, with nothing left of the way there."""
        found, latest = await self.end(voice)
        assert (found.state, found.version, latest.state) == (VoiceState.READY, 1, VersionState.READY), latest
        assert await self.embedding(voice) is not None
        assert await self.count("voice.enrolled", voice) == 1
        query = "SELECT upload, claimed_until, error_code FROM voice_versions WHERE voice_id = %s"
        assert self.rows.execute(query, (voice,)).fetchall() == [(None, None, None)]


def _open_as(settings: Settings, tenant: UUID) -> psycopg.Connection[tuple[Any, ...]]:
    """A connection that stays the tenant's."""
    url = make_url(settings.owner_url).set(drivername="postgresql").render_as_string(hide_password=False)
    connection = psycopg.connect(url, autocommit=True)
    query = "SELECT set_config('role', %s, false), set_config('app.tenant', %s, false)"
    connection.execute(query, (settings.service_role, str(tenant)))
    return connection


MakeEnrolling = Callable[..., Awaitable[Enrolling]]


@pytest.fixture
def start_enrolling(
    settings: Settings,
    database: Database,
    keyring: Keyring,
    make_tenant: MakeTenant,
    make_voice: MakeVoice,
    start_stack: StartStack,
) -> Iterator[MakeEnrolling]:
    """`await start_enrolling()`: a tenant and a Celery with short limits."""
    with contextlib.ExitStack() as life:

        async def start(limit_s: float = LIMIT_S) -> Enrolling:
            tenant = (await make_tenant("acme")).id
            rows = life.enter_context(_open_as(settings, tenant))
            stack = start_stack(only=("celery",), task_limit_s=limit_s)
            return Enrolling(stack, settings, database, keyring, tenant, make_voice, rows)

        yield start


def _children(parent: int) -> dict[int, str]:
    """The command lines of all processes below one, those in sessions of their own included."""
    found: dict[int, str] = {}
    below = {parent}
    for entry in sorted(Path("/proc").iterdir(), key=lambda entry: entry.name.zfill(10)):
        with contextlib.suppress(OSError, ValueError):
            pid = int(entry.name)
            if _parent_of(pid) in below:
                below.add(pid)
                found[pid] = (entry / "cmdline").read_text()
    return found


def _parent_of(pid: int) -> int:
    return int((Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])


def _find_decoder(parent: int) -> int:
    """The process that decodes, 0 when none does."""
    return next((pid for pid, command in _children(parent).items() if "worker.enrolment.decoder" in command), 0)


def _is_gone(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


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


@pytest.mark.parametrize("stage", list(Stage))
async def test_celery_killed_in_any_step_enrols_all_the_same(start_enrolling: MakeEnrolling, stage: Stage) -> None:
    """After `kill -9` of all its processes nothing half done stays, and the next Celery takes the recording up."""
    enrolling = await start_enrolling()
    voice = await enrolling.make_voice(enrolling.tenant, upload=UPLOAD)
    with enrolling.holding(voice) if stage is Stage.STORING else contextlib.nullcontext():
        enrolling.send(voice)
        if not enrolling.reach(voice, stage):
            voice = await enrolling.begin_until(stage)
        enrolling.stack.kill("celery")
    found = await enrolling.find(voice)
    assert found is not None and found.latest is not None
    assert (found.state, found.version, found.latest.stage) == (VoiceState.PENDING, 0, stage)
    assert await enrolling.count("voice.enrolled", voice) == 0
    enrolling.stack.start("celery")
    await enrolling.check_enrolled_once(voice)


@pytest.mark.parametrize("stage", list(Stage))
async def test_postgres_lost_in_any_step_loses_no_recording(start_enrolling: MakeEnrolling, stage: Stage) -> None:
    """When every connection breaks and none is let in for a while, the enrolment is put off, then done once."""
    enrolling = await start_enrolling()
    voice = await enrolling.make_voice(enrolling.tenant, upload=UPLOAD)
    held = enrolling.holding(voice) if stage is Stage.STORING else contextlib.nullcontext()
    # The connection that holds the voice breaks with the others.
    with contextlib.suppress(psycopg.OperationalError), held:
        enrolling.send(voice)
        if not enrolling.reach(voice, stage):
            voice = await enrolling.begin_until(stage)
        _set_open(enrolling.settings, False)
    log = enrolling.stack.log
    await asyncio.to_thread(wait_until, lambda: "enrolment put off" in log.read_text(), DEADLINE_S)
    _set_open(enrolling.settings, True)
    enrolling.rows = _open_as(enrolling.settings, enrolling.tenant)
    await enrolling.check_enrolled_once(voice)
    enrolling.rows.close()
    with redis.Redis.from_url(enrolling.settings.redis_url) as client:
        # What was Postgres' fault does not count against the recording.
        assert client.get(tries_key(voice, 1)) == b"1"


def _set_open(settings: Settings, allowed: bool) -> None:
    """Opens the test's database to connections, or closes it and ends those there are, as a server that stops does."""
    url = make_url(settings.owner_url)
    elsewhere = url.set(drivername="postgresql", database="postgres").render_as_string(hide_password=False)
    name = url.database or ""
    with psycopg.connect(elsewhere, autocommit=True) as connection:
        statement = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
        connection.execute(statement.format(sql.Identifier(name), sql.Literal(allowed)))
        if not allowed:
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))


async def test_redis_restarted_during_an_enrolment_is_not_noticed(start_enrolling: MakeEnrolling) -> None:
    """What is under way ends well, and Celery takes the next one from the new server."""
    enrolling = await start_enrolling(limit_s=30)
    voice = await enrolling.begin_until(Stage.DECODING)
    enrolling.stack.restart_valkey()
    await enrolling.check_enrolled_once(voice)
    await enrolling.check_enrolled_once(await enrolling.begin())


async def test_celery_that_is_asked_to_stop_finishes_what_it_has_begun(start_enrolling: MakeEnrolling) -> None:
    """It ends by itself, the recording is enrolled, and no message is left behind for the next one."""
    enrolling = await start_enrolling()
    voice = await enrolling.begin_until(Stage.DECODING)
    celery = enrolling.stack.processes["celery"]
    children = _children(celery.pid)
    celery.ask_to_stop()
    assert await asyncio.to_thread(celery.wait, DEADLINE_S)
    assert celery.exit_code == 0
    assert all(map(_is_gone, children))
    await enrolling.check_enrolled_once(voice)
    with redis.Redis.from_url(enrolling.settings.redis_url) as client:
        assert client.hlen(f"{KEY_PREFIX}unacked") == 0


async def test_no_process_outlives_a_killed_celery(start_enrolling: MakeEnrolling) -> None:
    """With the parent alone killed, its pool, its beat and the decoder end within seconds."""
    enrolling = await start_enrolling()
    await enrolling.begin_until(Stage.DECODING)
    parent = enrolling.stack.processes["celery"].pid
    children = _children(parent)
    assert len(children) >= 3
    os.kill(parent, signal.SIGKILL)
    await asyncio.to_thread(wait_until, lambda: all(map(_is_gone, children)), 5.0)


async def test_a_decoder_that_hangs_is_ended_and_the_recording_tried_again(start_enrolling: MakeEnrolling) -> None:
    """The soft time limit takes the enrolment back from it; the next attempt succeeds."""
    enrolling = await start_enrolling()
    voice = await enrolling.begin_until(Stage.DECODING)
    parent = enrolling.stack.processes["celery"].pid
    await asyncio.to_thread(wait_until, lambda: _find_decoder(parent), DEADLINE_S)
    decoder = _find_decoder(parent)
    os.kill(decoder, signal.SIGSTOP)
    await enrolling.check_enrolled_once(voice)
    assert _is_gone(decoder)


async def test_a_process_that_dies_is_replaced_and_its_recording_enrolled(start_enrolling: MakeEnrolling) -> None:
    """Its parent puts the message back, and whoever takes it waits until the dead one's claim is over."""
    enrolling = await start_enrolling()
    voice = await enrolling.begin_until(Stage.DECODING)
    parent = enrolling.stack.processes["celery"].pid
    await asyncio.to_thread(wait_until, lambda: _find_decoder(parent), DEADLINE_S)
    os.kill(_parent_of(_find_decoder(parent)), signal.SIGKILL)
    await enrolling.check_enrolled_once(voice)
    assert enrolling.stack.processes["celery"].pid == parent


async def test_a_process_that_hangs_is_killed_and_its_recording_enrolled(start_enrolling: MakeEnrolling) -> None:
    """The hard time limit holds for what does not react to anything, and another process takes its place."""
    enrolling = await start_enrolling()
    voice = await enrolling.begin_until(Stage.DECODING)
    parent = enrolling.stack.processes["celery"].pid
    await asyncio.to_thread(wait_until, lambda: _find_decoder(parent), DEADLINE_S)
    stuck = _parent_of(_find_decoder(parent))
    assert stuck != parent
    os.kill(stuck, signal.SIGSTOP)
    await enrolling.check_enrolled_once(voice)
    assert _is_gone(stuck)


async def test_a_recording_that_always_hangs_ends_with_a_reason(start_enrolling: MakeEnrolling) -> None:
    """After three attempts it is refused, and others are enrolled meanwhile."""
    enrolling = await start_enrolling(limit_s=3)
    voice = await enrolling.begin()
    parent = enrolling.stack.processes["celery"].pid
    seen: set[int] = set()
    while (found := await enrolling.find(voice)) and found.state is VoiceState.PENDING:
        if (decoder := _find_decoder(parent)) and decoder not in seen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(decoder, signal.SIGSTOP)
            seen.add(decoder)
        await asyncio.sleep(0.01)
    _, latest = await enrolling.end(voice)
    assert latest.error_code == "enrolment_timeout"
    assert len(seen) == 3


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
