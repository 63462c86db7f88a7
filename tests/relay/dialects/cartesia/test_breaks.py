"""Speech that breaks off after it has begun: its client must never take it for the whole."""

from __future__ import annotations

import json

import httpx2
import pytest

from tests.conftest import MakeTenant, MakeVoice, RunningStack, StartStack
from tests.relay.dialects.cartesia.conftest import Speaking, dial, hear, say
from tests.system.conftest import LONG_SENTENCE, SPEECH, embed

LONG = f"{LONG_SENTENCE}. " * 20


@pytest.fixture
def stack(start_stack: StartStack) -> RunningStack:
    """One in which a sentence is waited for no longer than a second."""
    return start_stack(only=SPEECH, sentence_timeout_s=1)


@pytest.fixture
async def speaking(make_tenant: MakeTenant, make_voice: MakeVoice) -> Speaking:
    """A tenant with a voice."""
    tenant = await make_tenant("acme")
    return Speaking(tenant, str(await make_voice(tenant.id, embedding=embed("low"))))


async def test_what_breaks_off_is_told(stack: RunningStack, speaking: Speaking) -> None:
    """Without its worker a speech fails: bytes break off, events and the WebSocket say why, and there is no `done`."""
    heard, headers = b"", {"X-API-Key": speaking.tenant.key}
    async with httpx2.AsyncClient(base_url=f"{stack.relay_url}/cartesia", headers=headers, timeout=30) as client:
        with pytest.raises(httpx2.RemoteProtocolError):
            async with client.stream("POST", "/tts/bytes", json=speaking.ask(LONG)) as answer:
                assert answer.status_code == 200
                async for _ in answer.aiter_bytes():
                    stack.pause("worker")
        stack.resume("worker")
        async with client.stream("POST", "/tts/sse", json=speaking.ask(LONG, context_id="c")) as answer:
            async for piece in answer.aiter_bytes():
                stack.pause("worker")
                heard += piece
        stack.resume("worker")
    events = [json.loads(block.split("data: ")[1]) for block in heard.decode().split("\n\n") if block]
    async with dial(stack, speaking.tenant.key) as connection:
        await say(connection, speaking.ask(LONG), "c")
        await connection.recv()
        stack.pause("worker")
        frames = await hear(connection, "c")
        stack.resume("worker")
    for told in (events, frames):
        assert {event["type"] for event in told[:-1]} <= {"chunk"}
        last = told[-1]
        assert (last["type"], last["error_code"], last["status_code"]) == ("error", "timeout", 502)
        assert (last["done"], last["context_id"]) == (False, "c")
