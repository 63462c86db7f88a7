"""What clients of the dialect see when something of the stack goes: each with the reason, none with a short success."""

from __future__ import annotations

import asyncio
import json

from redis.asyncio import Redis

from storage.database import Database
from tests.conftest import StartStack
from tests.relay.conftest import revoke
from tests.relay.dialects.elevenlabs.conftest import Speaking
from tests.relay.dialects.elevenlabs.desk import read_text
from tests.relay.dialects.elevenlabs.sockets import LONG, MULTI, STREAM, hear_all, open_socket, say
from tests.system.conftest import SPEECH

TWO = "Good morning. This is a short test. "


async def test_a_relay_that_stops_says_everything_first(start_stack: StartStack, acme: Speaking) -> None:
    """What was flushed is spoken to its end; then 1012, after which clients connect again."""
    stack = start_stack(only=SPEECH)
    async with open_socket(stack, acme, MULTI) as connection:
        await say(connection, text=TWO, context_id="a", flush=True)
        frames = [json.loads(await connection.recv())]
        stack.processes["relay"].ask_to_stop()
        await say(connection, context_id="a", close_context=True)
        more, code, _ = await hear_all(connection)
    frames += more
    assert read_text(frames) == TWO
    assert [bool(frame.get("isFinal")) for frame in frames].count(True) == 1
    assert code == 1012


async def test_a_worker_that_dies_is_not_heard(start_stack: StartStack, acme: Speaking) -> None:
    """Another one takes its sentence over: the text and its clock are as if nothing had been."""
    stack = start_stack(only=("worker", "worker-2", "relay"), workers=2)
    async with open_socket(stack, acme, STREAM) as connection:
        await say(connection, text=LONG)
        await say(connection, text="")
        frames = [json.loads(await connection.recv())]
        stack.kill("worker")
        more, code, _ = await hear_all(connection)
    frames += more
    assert (code, read_text(frames)) == (1000, LONG)


async def test_a_key_that_is_revoked_ends_the_connection(
    start_stack: StartStack, acme: Speaking, database: Database, redis: Redis
) -> None:
    """Within a second, with the reason in the close."""
    stack = start_stack(only=SPEECH)
    async with open_socket(stack, acme, MULTI) as connection:
        await say(connection, text=LONG, context_id="a", flush=True)
        await connection.recv()
        await revoke(database, redis, acme.tenant.key_id)
        async with asyncio.timeout(5):
            _, code, reason = await hear_all(connection)
    assert code == 1008
    assert "key" in reason
