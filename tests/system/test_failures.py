"""What dies in mid-sentence: workers, relays, Redis. The listener gets each sample once, or an error that says why."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import redis

from storage.redis import CONSUMER_GROUP, JOBS
from tests.conftest import wait_until
from tests.system.conftest import LONG_SENTENCE, SPEECH, MakeSpeaker, hear
from timbrelay.client import Chunk, ConnectionLost, RelayError

TEXT = f"{LONG_SENTENCE}. Afterwards something short."


def _pending(redis_url: str) -> int:
    with redis.Redis.from_url(redis_url) as client:
        return int(client.xpending(JOBS, CONSUMER_GROUP)["pending"])


def _holder(stack: Any) -> str:
    """The worker that works on the oldest job; consumers are named for their process."""
    with redis.Redis.from_url(stack.services.variables["REDIS_URL"]) as client:
        (row, *_) = client.xpending_range(JOBS, CONSUMER_GROUP, min="-", max="+", count=1)
    consumer = row["consumer"].decode()
    (name,) = [name for name in ("worker", "worker-2") if f"-{stack.processes[name].pid}-" in consumer]
    return str(name)


async def test_a_worker_killed_in_mid_sentence_is_not_heard(
    start_stack: Callable[..., Any], make_speaker: MakeSpeaker
) -> None:
    """Another worker takes over, and the listener hears, bit for bit, what an undisturbed run gives."""
    stack = start_stack(workers=2, only=("worker-2", *SPEECH))
    speaker = await make_speaker(stack, "acme", "low")
    undisturbed = await speaker.speak(TEXT)
    killed: list[int] = []

    def kill_once(chunk: Chunk) -> None:
        if not killed:
            stack.kill(_holder(stack))
            killed.append(chunk.number)

    disturbed = await speaker.speak(TEXT, on_chunk=kill_once)
    assert killed == [0]
    disturbed.check_order()
    assert disturbed.pcm == undisturbed.pcm
    claims = stack.log.read_text()
    assert "claimed a job" in claims


async def test_a_worker_that_hangs_and_comes_back_does_not_repeat_itself(
    start_stack: Callable[..., Any], make_speaker: MakeSpeaker
) -> None:
    """Two workers on one sentence, the stopped one waking up later, give each sample once."""
    stack = start_stack(workers=2, only=("worker-2", *SPEECH))
    speaker = await make_speaker(stack, "acme", "low")
    undisturbed = await speaker.speak(TEXT)
    stopped: list[str] = []

    def stop_and_resume(chunk: Chunk) -> None:
        if not stopped:
            stopped.append(_holder(stack))
            stack.pause(stopped[0])
        elif stopped[0] != "resumed" and chunk.number >= 4:
            stack.resume(stopped[0])
            stopped[0] = "resumed"

    disturbed = await speaker.speak(TEXT, on_chunk=stop_and_resume)
    disturbed.check_order()
    assert disturbed.pcm == undisturbed.pcm


async def test_the_only_worker_killed_and_started_again_finishes_its_sentence(
    start_stack: Callable[..., Any], make_speaker: MakeSpeaker
) -> None:
    """What a dead worker held waits for the next one."""
    stack = start_stack(only=SPEECH)
    speaker = await make_speaker(stack, "acme", "low")
    undisturbed = await speaker.speak(TEXT)
    killed: list[int] = []

    def kill_once(chunk: Chunk) -> None:
        if not killed:
            stack.kill("worker")
            stack.start("worker")
            killed.append(chunk.number)

    disturbed = await speaker.speak(TEXT, on_chunk=kill_once)
    assert disturbed.pcm == undisturbed.pcm


async def test_a_killed_relays_work_ends_soon(start_stack: Callable[..., Any], make_speaker: MakeSpeaker) -> None:
    """Its clients lose the connection, no job of it stays pending, and a new relay serves at once."""
    stack = start_stack(only=SPEECH)
    speaker = await make_speaker(stack, "acme", "low")
    undisturbed = await speaker.speak(TEXT)
    async with speaker.client.connect() as connection:
        contexts = [await connection.open(speaker.voice) for _ in range(8)]
        for context in contexts:
            await context.send(f"{LONG_SENTENCE}. " * 20)
        async for event in contexts[0]:
            if isinstance(event, Chunk):
                break
        stack.kill("relay")
        with pytest.raises(ConnectionLost):
            await hear(contexts[0])
    url = stack.services.variables["REDIS_URL"]
    await asyncio.to_thread(wait_until, lambda: _pending(url) == 0, 5.0)
    stack.start("relay")
    await asyncio.to_thread(stack.wait_ready)
    assert (await speaker.speak(TEXT)).pcm == undisturbed.pcm


@pytest.mark.parametrize("kill", [False, True])
async def test_redis_restarted_in_mid_text_is_not_heard(
    start_stack: Callable[..., Any], make_speaker: MakeSpeaker, kill: bool
) -> None:
    """Relay and worker find it again, and the text goes on where it was, each sample once."""
    stack = start_stack(only=SPEECH)
    speaker = await make_speaker(stack, "acme", "low")
    text = f"{LONG_SENTENCE}. " * 6
    undisturbed = await speaker.speak(text)
    restarted: list[int] = []

    def restart_once(chunk: Chunk) -> None:
        if chunk.sentence == 1 and not restarted:
            restarted.append(chunk.number)
            stack.restart_valkey(kill=kill)

    disturbed = await speaker.speak(text, on_chunk=restart_once)
    assert restarted
    disturbed.check_order()
    assert disturbed.pcm == undisturbed.pcm
    assert (await speaker.speak(TEXT)).pcm


async def test_redis_emptied_in_mid_text_is_not_heard(
    start_stack: Callable[..., Any], make_speaker: MakeSpeaker
) -> None:
    """Even with every job and result lost, what is under way is handed out again."""
    stack = start_stack(only=SPEECH)
    speaker = await make_speaker(stack, "acme", "low")
    text = f"{LONG_SENTENCE}. " * 6
    undisturbed = await speaker.speak(text)
    emptied: list[int] = []

    def empty_once(chunk: Chunk) -> None:
        if chunk.sentence == 1 and not emptied:
            emptied.append(chunk.number)
            with redis.Redis.from_url(stack.services.variables["REDIS_URL"]) as client:
                client.flushall()

    disturbed = await speaker.speak(text, on_chunk=empty_once)
    assert emptied
    disturbed.check_order()
    assert disturbed.pcm == undisturbed.pcm


async def test_a_worker_that_is_asked_to_stop_finishes_its_sentence(
    start_stack: Callable[..., Any], make_speaker: MakeSpeaker
) -> None:
    """A drain cuts nobody off, leaves no job behind and takes the worker's name out of the group."""
    stack = start_stack(only=SPEECH)
    speaker = await make_speaker(stack, "acme", "low")
    undisturbed = await speaker.speak(f"{LONG_SENTENCE}.")
    asked: list[int] = []

    def ask_once(chunk: Chunk) -> None:
        if not asked:
            asked.append(chunk.number)
            stack.processes["worker"].ask_to_stop()

    assert (await speaker.speak(f"{LONG_SENTENCE}.", on_chunk=ask_once)).pcm == undisturbed.pcm
    assert await asyncio.to_thread(stack.processes["worker"].wait, 10.0)
    with redis.Redis.from_url(stack.services.variables["REDIS_URL"]) as client:
        assert client.xinfo_consumers(JOBS, CONSUMER_GROUP) == []


async def test_a_deleted_voice_stays_silent_when_redis_loses_its_tombstone(
    start_stack: Callable[..., Any], make_speaker: MakeSpeaker
) -> None:
    """With the data of Redis gone, a worker that has spoken with the voice looks it up again, and finds nothing."""
    stack = start_stack(only=SPEECH)
    speaker = await make_speaker(stack, "acme", "low")
    async with speaker.client.connect() as connection:
        context = await connection.open(speaker.voice)
        await context.send("The first sentence is heard. ")
        async for event in context:
            if isinstance(event, Chunk) and event.last:
                break
        await speaker.client.delete_voice(speaker.voice)
        with redis.Redis.from_url(stack.services.variables["REDIS_URL"]) as client:
            client.flushall()
        await context.send("The second must not be heard. ")
        with pytest.raises(RelayError) as caught:
            await hear(context)
    assert caught.value.code == "voice_unavailable"
