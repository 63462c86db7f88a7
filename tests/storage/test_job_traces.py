"""storage.streams.job_traces and storage.streams.leftovers, over a real server."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis

from storage.cold_jobs import KEY_PREFIX, QUEUE, make_celery, send_deletion, send_enrolment
from storage.redis import CONSUMER_GROUP, DEAD_LETTER, JOBS, connect, results_key
from storage.settings import Settings
from storage.streams.job_traces import plan_stripping, strip_jobs
from storage.streams.jobs import JobStream
from storage.streams.leftovers import count_spoken, strip_dead_letter, strip_queues
from storage.streams.presence import announce_worker
from storage.streams.results import ResultPublisher, ResultReader
from storage.streams.wire import Chunk, Failure, Job, Result

RELAY = "relay-1"
VOICE, OTHER = uuid4(), uuid4()


@pytest.fixture
async def redis(settings: Settings) -> AsyncIterator[Redis]:
    client = connect(settings.redis_url)
    yield client
    await client.aclose()


@pytest.fixture
async def jobs(redis: Redis) -> JobStream:
    stream = JobStream(redis)
    await stream.ensure_group()
    return stream


def _job(voice: UUID, sentence: int = 0) -> Job:
    return Job(RELAY, f"context-of-{voice}", sentence, uuid4(), voice, 1, 0, f"secret words of {voice}")


async def _text(redis: Redis) -> bytes:
    rows: Any = await redis.xrange(JOBS)
    return b" ".join(fields[b"text"] for _, fields in rows)


async def _lag(redis: Redis) -> Any:
    (group,) = await redis.xinfo_groups(JOBS)
    return group["lag"]


async def _read(reader: ResultReader) -> list[Result]:
    return [result async for result in reader.read()]


@given(st.sets(st.integers(1, 30), max_size=20), st.sets(st.integers(1, 30), max_size=20), st.integers(0, 31))
def test_each_entry_has_one_fate_and_no_fate_breaks_the_lag(named: set[int], pending: set[int], last: int) -> None:
    """What goes by itself is acknowledged and below the last delivered; the last goes only when nothing is pending."""
    entries = [b"7-%d" % number for number in sorted(named)]
    held = frozenset(b"7-%d" % number for number in pending if number <= last)
    plan = plan_stripping(entries, held, b"7-%d" % last)
    through = () if plan.trim_through is None else (plan.trim_through,)
    assert len(plan.remove) + len(through) + plan.left == len(entries)
    assert all(int(entry[2:]) < last and entry not in held for entry in plan.remove)
    assert set(plan.held) == held & set(entries)
    assert all(int(entry[2:]) > last for entry in plan.waiting)
    assert plan.trim_through is None or (not held and plan.trim_through == b"7-%d" % last)


async def test_what_was_spoken_leaves_no_text_and_the_queue_counts_on(jobs: JobStream, redis: Redis) -> None:
    """Entries in the middle and at the end of what is done are taken out, others stay, and the lag is a number."""
    for sentence, voice in enumerate((VOICE, OTHER, VOICE)):
        await jobs.submit(_job(voice, sentence))
    await jobs.acknowledge([delivery.entry for delivery in await jobs.take("a", 9, 10)])
    stripped = await strip_jobs(redis, VOICE, 1.0)
    assert (stripped.count, stripped.left) == (2, 0)
    assert str(VOICE).encode() not in await _text(redis)
    await jobs.submit(_job(OTHER))
    assert await _lag(redis) == 1


async def test_the_last_entry_waits_while_an_older_one_is_pending(jobs: JobStream, redis: Redis) -> None:
    """Another voice's sentence is not disturbed; the next attempt takes the entry out."""
    await announce_worker(redis, "a")
    await jobs.submit(_job(OTHER))
    await jobs.submit(_job(VOICE))
    other, mine = await jobs.take("a", 9, 10)
    await jobs.acknowledge([mine.entry])
    assert (await strip_jobs(redis, VOICE, 0.0)).left == 1
    assert await _lag(redis) == 0
    await jobs.acknowledge([other.entry])
    stripped = await strip_jobs(redis, VOICE, 0.0)
    assert (stripped.count, stripped.left) == (1, 0)
    assert await _text(redis) == b""
    await jobs.submit(_job(OTHER))
    assert await _lag(redis) == 1


async def test_a_job_that_its_worker_does_not_end_is_ended_for_it_and_its_listener_told(
    jobs: JobStream, redis: Redis
) -> None:
    """A stopped worker holds up nobody; the audio that was not heard goes, the reason stays."""
    await announce_worker(redis, "stopped")
    reader = ResultReader(redis, RELAY, 60_000)
    await reader.keep_alive()
    await jobs.submit(_job(VOICE))
    (delivery,) = await jobs.take("stopped", 9, 10)
    await ResultPublisher(redis).publish(
        delivery.job, Chunk(delivery.job.context, 0, 0, False, b"\1\0" * 9), acknowledge=None
    )
    stripped = await strip_jobs(redis, VOICE, 0.0)
    assert stripped.left == 0
    assert await redis.xlen(JOBS) == 0
    assert (await jobs.depth()).pending == 0
    (failure,) = await _read(reader)
    assert isinstance(failure, Failure)
    assert (failure.code, failure.retryable) == ("voice_unavailable", False)


async def test_without_a_worker_the_queue_is_searched_and_others_keep_their_place(
    jobs: JobStream, redis: Redis
) -> None:
    """What waits of the voice goes, and the next worker claims the rest as if it were a dead one's."""
    await ResultReader(redis, RELAY, 60_000).keep_alive()
    for sentence, voice in enumerate((OTHER, VOICE, OTHER)):
        await jobs.submit(_job(voice, sentence))
    stripped = await strip_jobs(redis, VOICE, 0.0)
    assert (stripped.count, stripped.left) == (1, 0)
    claimed = await jobs.claim("new", 0, 9)
    assert [(delivery.job.voice, delivery.job.sentence) for delivery in claimed] == [(OTHER, 0), (OTHER, 2)]
    assert await _lag(redis) == 0


async def test_what_waits_for_a_worker_that_is_there_is_left_to_it(jobs: JobStream, redis: Redis) -> None:
    """The queue is not taken from a worker that is about to see the tombstone."""
    await announce_worker(redis, "a")
    await jobs.submit(_job(VOICE))
    assert (await strip_jobs(redis, VOICE, 0.0)).left == 1
    assert (await redis.xpending(JOBS, CONSUMER_GROUP))["pending"] == 0


async def test_audio_of_other_contexts_stays(jobs: JobStream, redis: Redis) -> None:
    """Of a relay's results only those of the voice's contexts are taken out."""
    reader = ResultReader(redis, RELAY, 60_000)
    await reader.keep_alive()
    await jobs.submit(_job(VOICE))
    await jobs.take("a", 9, 10)
    for voice in (VOICE, OTHER):
        job = _job(voice)
        await ResultPublisher(redis).publish(job, Chunk(job.context, 0, 0, False, b"\1\0"), acknowledge=None)
    await strip_jobs(redis, VOICE, 0.0)
    heard = await _read(reader)
    assert [(type(result).__name__, result.context) for result in heard] == [
        ("Chunk", f"context-of-{OTHER}"),
        ("Failure", f"context-of-{VOICE}"),
    ]
    assert await redis.exists(results_key(RELAY))


async def test_an_empty_redis_has_no_traces(redis: Redis) -> None:
    """Without a stream, a group or a queue there is nothing to take out."""
    assert (await strip_jobs(redis, VOICE, 0.0)).count == 0
    assert await strip_dead_letter(redis, VOICE) == 0
    assert await strip_queues(redis, VOICE) == (0, 0)
    assert await count_spoken(redis, uuid4(), VOICE) == 0


async def test_the_dead_letter_forgets_the_voice(redis: Redis) -> None:
    """Its entries go, others' stay."""
    for voice in (VOICE, OTHER, VOICE):
        await redis.xadd(DEAD_LETTER, {"voice": str(voice), "context": "c"})
    assert await strip_dead_letter(redis, VOICE) == 2
    rows: Any = await redis.xrange(DEAD_LETTER)
    assert [fields[b"voice"].decode() for _, fields in rows] == [str(OTHER)]


async def test_tasks_of_the_voice_leave_the_queue_and_those_in_hand_are_counted(
    redis: Redis, settings: Settings
) -> None:
    """Enrolments that wait go; one that a process has taken stays, and says so; all others are untouched."""
    celery = make_celery(settings)
    send_enrolment(celery, uuid4(), VOICE, 1)
    send_enrolment(celery, uuid4(), OTHER, 1)
    send_deletion(celery, uuid4(), uuid4())
    body = base64.b64encode(json.dumps([["t", str(VOICE), 1], {}, {}]).encode()).decode()
    await redis.hset(f"{KEY_PREFIX}unacked", "tag", json.dumps([{"body": body}, "", QUEUE]))
    assert await strip_queues(redis, VOICE) == (1, 1)
    left: Any = await redis.lrange(f"{KEY_PREFIX}{QUEUE}", 0, -1)
    assert len(left) == 2
    assert not any(str(VOICE).encode() in message for message in left)
