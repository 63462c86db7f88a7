"""storage.streams.jobs, storage.streams.results and storage.streams.presence, over a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from storage.errors import ServerUnavailable
from storage.redis import DEAD_LETTER, JOBS, connect
from storage.settings import Settings
from storage.streams.broadcasts import silence_voice
from storage.streams.jobs import MAX_DELIVERIES, JobStream
from storage.streams.results import ResultPublisher, ResultReader, cancel_context
from storage.streams.wire import Chunk, Failure, Job, Result

RELAY = "relay-1"


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


def _job(sentence: int = 0, text: str = "Hello there.") -> Job:
    return Job(RELAY, "context-1", sentence, uuid4(), uuid4(), 1, 0, text)


def _chunk(number: int, *, last: bool = False) -> Chunk:
    return Chunk("context-1", 0, number, last, b"\1\0" * 4)


async def _read(reader: ResultReader) -> list[Result]:
    return [result async for result in reader.read()]


async def test_jobs_are_taken_once_in_the_order_they_came(jobs: JobStream) -> None:
    """Two workers of the group never get the same job."""
    sent = [_job(number) for number in range(4)]
    for job in sent:
        await jobs.submit(job)
    first = await jobs.take("a", 2, 10)
    second = await jobs.take("b", 10, 10)
    assert [delivery.job for delivery in [*first, *second]] == sent


async def test_making_the_group_twice_does_no_harm(jobs: JobStream) -> None:
    """Every process makes the group; the second finds it."""
    await jobs.submit(_job())
    await jobs.ensure_group()
    assert len(await jobs.take("a", 1, 10)) == 1


async def test_a_silent_workers_job_is_claimed_and_a_kept_one_is_not(jobs: JobStream) -> None:
    """Idle time decides who has died; keeping a job starts it again."""
    await jobs.submit(_job())
    (delivery,) = await jobs.take("a", 1, 10)
    assert await jobs.claim("b", 60_000, 5) == []
    await jobs.keep("a", [delivery.entry])
    assert [d.job for d in await jobs.claim("b", 0, 5)] == [delivery.job]


async def test_an_acknowledged_job_is_not_claimed(jobs: JobStream) -> None:
    """What is done stays done."""
    await jobs.submit(_job())
    (delivery,) = await jobs.take("a", 1, 10)
    await jobs.acknowledge([delivery.entry])
    assert await jobs.claim("b", 0, 5) == []
    assert (await jobs.depth()).pending == 0


async def test_a_job_that_kills_its_workers_goes_to_the_dead_letter_without_its_text(
    jobs: JobStream, redis: Redis
) -> None:
    """After MAX_DELIVERIES attempts nobody gets it any more, its relay is told, and what was to be said is not kept."""
    reader = ResultReader(redis, RELAY, 60_000)
    await reader.keep_alive()
    await jobs.submit(_job(text="secret words"))
    await jobs.take("a", 1, 10)
    for attempt in range(1, MAX_DELIVERIES):
        assert await jobs.claim(f"w{attempt}", 0, 5)
    assert await jobs.claim("last", 0, 5) == []
    rows: Any = await redis.xrange(DEAD_LETTER)
    ((_, buried),) = rows
    assert b"context" in buried
    assert b"secret words" not in b"".join(buried.values())
    (failure,) = await _read(reader)
    assert isinstance(failure, Failure)
    assert (failure.context, failure.code) == ("context-1", "synthesis_failed")


async def test_a_malformed_entry_goes_to_the_dead_letter(jobs: JobStream, redis: Redis) -> None:
    """What cannot be read is set aside and does not come back."""
    await redis.xadd(JOBS, {"v": "9", "kind": "job"})
    assert await jobs.take("a", 5, 10) == []
    assert await redis.xlen(DEAD_LETTER) == 1
    assert (await jobs.depth()).pending == 0


async def test_depth_tells_waiting_from_pending_also_after_trimming(jobs: JobStream, redis: Redis) -> None:
    """Trimming drops what is done and keeps what waits or is worked on, and the lag stays a number."""
    for number in range(5):
        await jobs.submit(_job(number))
    done, held = await jobs.take("a", 2, 10)
    await jobs.acknowledge([done.entry])
    await jobs.trim()
    depth = await jobs.depth()
    assert (depth.waiting, depth.pending) == (3, 1)
    assert await redis.xlen(JOBS) == 4
    await jobs.acknowledge([held.entry])
    assert [delivery.job.sentence for delivery in await jobs.take("a", 5, 10)] == [2, 3, 4]


async def test_nothing_of_what_is_done_stays_in_the_stream(jobs: JobStream, redis: Redis) -> None:
    """Not even the last entry, which holds a text: it may be the last one for days."""
    await jobs.submit(_job())
    (delivery,) = await jobs.take("a", 2, 10)
    await jobs.acknowledge([delivery.entry])
    await jobs.trim()
    assert await redis.xlen(JOBS) == 0
    await jobs.submit(_job(1))
    assert (await jobs.depth()).waiting == 1
    assert [delivery.job.sentence for delivery in await jobs.take("a", 5, 10)] == [1]


async def test_a_consumer_leaves_only_when_it_holds_nothing(jobs: JobStream, redis: Redis) -> None:
    """Removing a consumer must not lose the jobs it still holds."""
    await jobs.submit(_job())
    (delivery,) = await jobs.take("a", 1, 10)
    await jobs.leave("a")
    assert len(await redis.xinfo_consumers(JOBS, "workers")) == 1
    await jobs.acknowledge([delivery.entry])
    await jobs.leave("a")
    assert await redis.xinfo_consumers(JOBS, "workers") == []


async def test_results_reach_a_living_relay_in_order(redis: Redis) -> None:
    """The reader yields what was published, once, in order."""
    reader, publisher = ResultReader(redis, RELAY, 5000), ResultPublisher(redis)
    assert await reader.keep_alive() is False
    sent = [_chunk(0), _chunk(1), _chunk(2, last=True)]
    for chunk in sent:
        assert not (await publisher.publish(_job(), chunk, acknowledge=None)).stop
    assert await _read(reader) == sent
    assert await reader.keep_alive() is True
    await publisher.publish(_job(), _chunk(3), acknowledge=None)
    assert await _read(reader) == [_chunk(3)]


async def test_what_was_read_is_trimmed(redis: Redis) -> None:
    """A relay that lives for weeks does not pile up its results."""
    reader, publisher = ResultReader(redis, RELAY, 5000), ResultPublisher(redis)
    await reader.keep_alive()
    for number in range(10):
        await publisher.publish(_job(), _chunk(number), acknowledge=None)
    await _read(reader)
    await reader.keep_alive()
    assert await redis.xlen(f"timbrelay:results:{RELAY}") <= 1


async def test_a_dead_relay_gets_nothing_and_the_worker_learns_it(redis: Redis) -> None:
    """Publishing to a relay without a stream makes none, and says that the relay is gone."""
    publisher = ResultPublisher(redis)
    assert (await publisher.ask(_job())).relay_gone
    assert (await publisher.publish(_job(), _chunk(0), acknowledge=None)).relay_gone
    assert not await redis.exists(f"timbrelay:results:{RELAY}")


async def test_a_relays_stream_expires_with_its_signs_of_life(redis: Redis) -> None:
    """The stream has a time to live from its first moment on."""
    await ResultReader(redis, RELAY, 5000).keep_alive()
    assert 0 < await redis.pttl(f"timbrelay:results:{RELAY}") <= 5000


async def test_the_last_chunk_and_its_acknowledgement_happen_together(jobs: JobStream, redis: Redis) -> None:
    """Publishing with an entry acknowledges it."""
    await ResultReader(redis, RELAY, 5000).keep_alive()
    await jobs.submit(_job())
    (delivery,) = await jobs.take("a", 1, 10)
    await ResultPublisher(redis).publish(delivery.job, _chunk(0, last=True), acknowledge=delivery.entry)
    assert (await jobs.depth()).pending == 0


async def test_tombstones_reach_the_worker_with_its_next_chunk(redis: Redis) -> None:
    """A cancelled context and a deleted voice both stop the job, and are told apart."""
    await ResultReader(redis, RELAY, 5000).keep_alive()
    publisher, job = ResultPublisher(redis), _job()
    await cancel_context(redis, job.context)
    verdict = await publisher.publish(job, _chunk(0), acknowledge=None)
    assert (verdict.cancelled, verdict.voice_silenced) == (True, False)
    await silence_voice(redis, job.voice)
    assert (await publisher.ask(job)).voice_silenced


@pytest.mark.parametrize(
    ("setting", "value", "normal"), [("maxmemory", "1", "256mb"), ("min-replicas-to-write", "9", "0")]
)
async def test_a_server_that_cannot_take_anything_is_unavailable(
    redis: Redis, jobs: JobStream, setting: str, value: str, normal: str
) -> None:
    """A full server is met like one that is away, with and without a transaction: wait and try again."""
    await ResultReader(redis, RELAY, 60_000).keep_alive()
    await redis.config_set(setting, value)
    try:
        with pytest.raises(ServerUnavailable):
            await jobs.submit(_job())
        with pytest.raises(ServerUnavailable):
            await ResultPublisher(redis).publish(_job(), _chunk(0), acknowledge=None)
    finally:
        await redis.config_set(setting, normal)
    await jobs.submit(_job())


async def test_what_many_jobs_say_at_once_reaches_each_with_its_own_verdict(redis: Redis, jobs: JobStream) -> None:
    """A hundred chunks of as many jobs, one of them cancelled, one of a relay that is gone: each learns of itself, and
    all are there in order."""
    reader = ResultReader(redis, RELAY, 5000)
    await reader.keep_alive()
    publisher = ResultPublisher(redis)
    sent = [replace(_job(), context=f"c{number}", relay="gone" if number == 7 else RELAY) for number in range(100)]
    await cancel_context(redis, "c42")
    verdicts = await asyncio.gather(
        *(publisher.publish(job, replace(_chunk(0), context=job.context), acknowledge=None) for job in sent)
    )
    assert [number for number, verdict in enumerate(verdicts) if verdict.cancelled] == [42]
    assert [number for number, verdict in enumerate(verdicts) if verdict.relay_gone] == [7]
    heard = await _read(reader)
    assert [result.context for result in heard] == [job.context for job in sent if job.relay == RELAY]
