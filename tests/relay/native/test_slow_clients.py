"""Back-pressure: who sends faster than can be spoken, and who does not read. The relay's memory stays flat."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import asdict
from uuid import UUID

from redis.asyncio import Redis
from websockets.asyncio.client import ClientConnection

from storage.redis import WORKERS, worker_key
from storage.streams.presence import WorkerLoad
from tests.conftest import MakeTenant, MakeVoice, RunningStack, StartStack
from tests.relay.conftest import EMBEDDING
from tests.relay.native.ears import listen, read_rss
from tests.relay.native.test_open_sockets import figure, until
from timbrelay.client import Client

MB = 1024 * 1024
WORDS = "a text that nobody can say as fast as it is sent, word after word, sentence after sentence. "
PIECE = (WORDS * 120)[:10_000]


async def test_text_that_comes_faster_than_it_is_spoken_is_bounded(
    start_stack: StartStack, make_tenant: MakeTenant, make_voice: MakeVoice, redis: Redis
) -> None:
    """Sixteen contexts take 100,000 characters each, and not one more; the jobs wait, too."""
    stack = start_stack(only=())
    await redis.sadd(WORKERS, "nobody")
    await redis.set(worker_key("nobody"), json.dumps(asdict(WorkerLoad(100, 0, 0.0))))
    stack.start("relay")
    stack.wait_ready()
    tenant = await make_tenant("acme")
    voice = await make_voice(tenant.id, embedding=EMBEDDING)
    async with listen(stack, tenant.key) as warm:
        await warm.say("open", voice=str(voice))
        await warm.say("text", text=PIECE)
        await warm.say("cancel")
        await warm.until("cancelled")
    before = read_rss(stack)
    async with listen(stack, tenant.key) as ear:
        await _fill(ear.connection, voice)
        errors = [await ear.until("error") for _ in range(16)]
        assert {error["code"] for error in errors} == {"text_too_long"}
        assert {error["context"] for error in errors} == {f"c{number}" for number in range(16)}
        grown = read_rss(stack) - before
        # Two of each context, and again after each time that a busy machine kept the relay from its heartbeat.
        assert await figure(stack, "timbrelay_jobs_submitted_total") < 16 * 2 * 10
        await ear.say("open", voice=str(voice))
        await ear.until("opened")
    # 1.6 million characters of text, and each word's place in it: five megabytes a context.
    assert grown < 120 * MB, (before / MB, grown / MB)


async def _fill(connection: ClientConnection, voice: UUID) -> None:
    send = connection.send
    for number in range(16):
        await send(json.dumps({"type": "open", "context": f"c{number}", "voice": str(voice)}))
    for _ in range(10):
        for number in range(16):
            await send(json.dumps({"type": "text", "context": f"c{number}", "text": PIECE}))
    for number in range(16):
        await send(json.dumps({"type": "text", "context": f"c{number}", "text": "!"}))


async def test_a_client_that_does_not_read_costs_no_more_than_its_bounds(
    start_stack: StartStack, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """Nothing is synthesized for it beyond what is waiting, and another client is served meanwhile."""
    stack = start_stack(only=("worker", "relay"), send_timeout_s=60.0)
    tenant = await make_tenant("acme")
    voice = await make_voice(tenant.id, embedding=EMBEDDING)
    async with Client(stack.relay_url, tenant.key) as client, client.connect() as connection:
        context = await connection.open(str(voice))
        await context.send("This one warms everything up.")
        await context.end()
        assert [event async for event in context]
        before = read_rss(stack)
        async with listen(stack, tenant.key) as ear:
            ear.connection.transport.pause_reading()
            for number in range(8):
                await ear.speak(voice, PIECE[:3000], f"c{number}")
            await until(lambda: _is_still(stack))
            grown = read_rss(stack) - before
            other = await connection.open(str(voice))
            await other.send("And this one is heard all the same.")
            await other.end()
            assert [event async for event in other]
            ear.cut()
    assert grown < 40 * MB, (before / MB, grown / MB)


async def test_two_hundred_idle_sockets_are_cheap(start_relay: StartStack, make_tenant: MakeTenant) -> None:
    """Less than a hundred megabytes for all of them."""
    stack = start_relay()
    tenant = await make_tenant("acme")
    async with listen(stack, tenant.key) as warm:
        await warm.say("cancel")
    before = read_rss(stack)
    async with contextlib.AsyncExitStack() as sockets:
        ears = [await sockets.enter_async_context(listen(stack, tenant.key)) for _ in range(200)]
        for ear in ears:
            await (await ear.connection.ping())
        grown = read_rss(stack) - before
        assert await figure(stack, "timbrelay_connections ") == 200
    assert grown < 100 * MB, (before / MB, grown / MB)


async def _is_still(stack: RunningStack) -> bool:
    """Whether no chunk comes any more, though there is text."""
    before = await figure(stack, "timbrelay_chunks_sent_total")
    await asyncio.sleep(1.0)
    return await figure(stack, "timbrelay_chunks_sent_total") == before > 100
