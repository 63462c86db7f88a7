"""A relay that is told to stop: who speaks is heard to the end, everybody else is sent elsewhere."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest
from websockets.exceptions import InvalidStatus

from tests.conftest import MakeTenant, MakeVoice, RunningStack, StartStack, wait_until
from tests.relay.conftest import EMBEDDING
from tests.relay.native.ears import listen

TEXT = (
    "This goes on for as long as it takes to be heard. And then there is one more sentence. Here is the last of them. "
)


async def _ask_to_stop(stack: RunningStack) -> None:
    """Returns when readiness has gone down."""
    stack.processes["relay"].ask_to_stop()
    ready = stack.metrics_urls["relay"] + "/readyz"
    await asyncio.to_thread(wait_until, lambda: httpx2.get(ready).status_code == 503)


async def test_who_speaks_is_heard_to_the_end(
    start_stack: StartStack, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """`draining`, then all of the audio, `done` and 1012 with a reason; idle sockets get it at once, and nobody new
    comes in, by a new socket or over an old one, but is told when to try again."""
    # As fast as it is heard, so that there is time to stop in.
    stack = start_stack(only=("worker", "relay"), run_ahead_ms=200, drain_timeout_s=19.0)
    tenant = await make_tenant("acme")
    voice = await make_voice(tenant.id, embedding=EMBEDDING)
    async with listen(stack, tenant.key) as ear, listen(stack, tenant.key) as idle, listen(stack, tenant.key) as other:
        await other.say("open", voice=str(voice))
        await other.until("opened")
        other.cut()
        await ear.speak(voice, TEXT)
        await ear.frame(3)
        await _ask_to_stop(stack)
        draining = await ear.until("draining")
        assert draining["within_ms"] == 19_000
        code, reason = await idle.closed()
        assert (code, "connect again" in reason) == (1012, True)
        with pytest.raises(InvalidStatus) as caught:
            async with listen(stack, tenant.key):
                pass
        problem: dict[str, Any] = json.loads(caught.value.response.body or b"")
        assert (problem["code"], problem["retryable"], problem["retry_after_ms"]) == ("overloaded", True, 1000)
        await ear.say("open", "d", voice=str(voice))
        while (refused := await ear.hear())["type"] != "error":
            pass
        assert (refused["code"], refused["context"], refused["retry_after_ms"]) == ("overloaded", "d", 1000)
        assert await ear.closed() == (code, reason)
    assert ear.kinds()[-1] == "done"
    assert ear.messages[-1]["samples"] == len(ear.pcm()) // 2
    assert await asyncio.to_thread(stack.processes["relay"].wait, 15.0)
    assert stack.processes["relay"].exit_code == 0


@pytest.mark.parametrize("patience_s", [0.0, 1.0])
async def test_at_the_deadline_what_is_left_ends_with_an_error(
    start_relay: StartStack, make_tenant: MakeTenant, make_voice: MakeVoice, patience_s: float
) -> None:
    """It says what was not spoken; then 1012 with the reason."""
    stack = start_relay(drain_timeout_s=patience_s)
    tenant = await make_tenant("acme")
    voice = await make_voice(tenant.id, embedding=EMBEDDING)
    async with listen(stack, tenant.key) as ear:
        await ear.say("open", voice=str(voice))
        await ear.say("text", text="Nobody is there to say this.")
        await ear.until("opened")
        stack.processes["relay"].ask_to_stop()
        assert (await ear.until("draining"))["within_ms"] == 1000 * patience_s
        error = await ear.until("error")
        assert (error["code"], error["context"], error["retryable"]) == ("interrupted", "c", True)
        assert error["unspoken"] == {"start": 0, "end": 28}
        code, reason = await ear.closed()
        assert (code, "connect again" in reason) == (1012, True)
    assert await asyncio.to_thread(stack.processes["relay"].wait, 15.0)
    assert stack.processes["relay"].exit_code == 0


async def test_a_connection_that_has_lived_long_enough_is_renewed(
    start_relay: StartStack, make_tenant: MakeTenant
) -> None:
    """1012 and a reason, so that every client does what it does when a relay restarts."""
    stack = start_relay(connection_life_s=1.0)
    tenant = await make_tenant("acme")
    async with listen(stack, tenant.key) as ear:
        code, reason = await ear.closed()
    assert (code, "long enough" in reason) == (1012, True)
    assert ear.kinds() == ["hello", "draining"]
