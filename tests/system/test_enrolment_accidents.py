"""Enrolment when anything dies in the middle of it: Celery, one of its processes, its decoder, Postgres, Redis."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

import psycopg
import pytest
import redis
from psycopg import sql
from sqlalchemy import make_url

from storage.cold_jobs import KEY_PREFIX
from storage.redis import tries_key
from storage.settings import Settings
from storage.states import VoiceState
from tests.conftest import wait_until
from tests.system.enrolling import (
    DEADLINE_S,
    UPLOAD,
    MakeEnrolling,
    find_decoder,
    is_gone,
    list_below,
    open_as,
    parent_of,
)
from worker.enrolment.stages import Stage


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
    enrolling.rows = open_as(enrolling.settings, enrolling.tenant)
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
    children = list_below(celery.pid)
    celery.ask_to_stop()
    assert await asyncio.to_thread(celery.wait, DEADLINE_S)
    assert celery.exit_code == 0
    assert all(map(is_gone, children))
    await enrolling.check_enrolled_once(voice)
    with redis.Redis.from_url(enrolling.settings.redis_url) as client:
        assert client.hlen(f"{KEY_PREFIX}unacked") == 0


async def test_no_process_outlives_a_killed_celery(start_enrolling: MakeEnrolling) -> None:
    """With the parent alone killed, its pool, its beat and the decoder end within seconds."""
    enrolling = await start_enrolling()
    await enrolling.begin_until(Stage.DECODING)
    parent = enrolling.stack.processes["celery"].pid
    children = list_below(parent)
    assert len(children) >= 3
    os.kill(parent, signal.SIGKILL)
    await asyncio.to_thread(wait_until, lambda: all(map(is_gone, children)), 5.0)


async def test_a_decoder_that_hangs_is_ended_and_the_recording_tried_again(start_enrolling: MakeEnrolling) -> None:
    """The soft time limit takes the enrolment back from it; the next attempt succeeds."""
    enrolling = await start_enrolling()
    voice = await enrolling.begin_until(Stage.DECODING)
    parent = enrolling.stack.processes["celery"].pid
    await asyncio.to_thread(wait_until, lambda: find_decoder(parent), DEADLINE_S)
    decoder = find_decoder(parent)
    os.kill(decoder, signal.SIGSTOP)
    await enrolling.check_enrolled_once(voice)
    assert is_gone(decoder)


async def test_a_process_that_dies_is_replaced_and_its_recording_enrolled(start_enrolling: MakeEnrolling) -> None:
    """Its parent puts the message back, and whoever takes it waits until the dead one's claim is over."""
    enrolling = await start_enrolling()
    voice = await enrolling.begin_until(Stage.DECODING)
    parent = enrolling.stack.processes["celery"].pid
    await asyncio.to_thread(wait_until, lambda: find_decoder(parent), DEADLINE_S)
    os.kill(parent_of(find_decoder(parent)), signal.SIGKILL)
    await enrolling.check_enrolled_once(voice)
    assert enrolling.stack.processes["celery"].pid == parent


async def test_a_process_that_hangs_is_killed_and_its_recording_enrolled(start_enrolling: MakeEnrolling) -> None:
    """The hard time limit holds for what does not react to anything, and another process takes its place."""
    enrolling = await start_enrolling()
    voice = await enrolling.begin_until(Stage.DECODING)
    parent = enrolling.stack.processes["celery"].pid
    await asyncio.to_thread(wait_until, lambda: find_decoder(parent), DEADLINE_S)
    stuck = parent_of(find_decoder(parent))
    assert stuck != parent
    os.kill(stuck, signal.SIGSTOP)
    await enrolling.check_enrolled_once(voice)
    assert is_gone(stuck)


async def test_a_recording_that_always_hangs_ends_with_a_reason(start_enrolling: MakeEnrolling) -> None:
    """After three attempts it is refused, and others are enrolled meanwhile."""
    enrolling = await start_enrolling(limit_s=3)
    voice = await enrolling.begin()
    parent = enrolling.stack.processes["celery"].pid
    seen: set[int] = set()
    while (found := await enrolling.find(voice)) and found.state is VoiceState.PENDING:
        if (decoder := find_decoder(parent)) and decoder not in seen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(decoder, signal.SIGSTOP)
            seen.add(decoder)
        await asyncio.sleep(0.01)
    _, latest = await enrolling.end(voice)
    assert latest.error_code == "enrolment_timeout"
    assert len(seen) == 3
