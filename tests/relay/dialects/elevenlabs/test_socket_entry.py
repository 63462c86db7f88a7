"""Who comes in to a running relay and who is told why not; what can be said there, and what cannot."""

from __future__ import annotations

import asyncio
import json
from uuid import uuid4

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.conftest import MakeTenant, MakeVoice, RunningStack
from tests.relay.dialects.elevenlabs.conftest import Speaking, embed
from tests.relay.dialects.elevenlabs.desk import read_audio, read_text
from tests.relay.dialects.elevenlabs.sockets import (
    MULTI,
    STREAM,
    TEXT,
    hear_all,
    hear_final,
    open_socket,
    say,
    speak_stream,
)

ONE_STACK = True


@pytest.mark.parametrize("where", ["header", "bearer", "query", "xi-api-key", "xi_api_key", "authorization"])
async def test_a_key_may_come_from_anywhere(stack: RunningStack, acme: Speaking, where: str) -> None:
    """A header, the query, or the first message in any spelling."""
    key = acme.tenant.key
    first = {where: key} if where in ("xi-api-key", "xi_api_key", "authorization") else {}
    if where == "authorization":
        first = {where: f"Bearer {key}"}
    query = f"output_format=pcm_24000&authorization={key}" if where == "query" else ""
    if where == "bearer":
        url = f"{stack.relay_url.replace('http', 'ws')}/elevenlabs/v1/text-to-speech/{acme.voice}/{STREAM}"
        async with connect(url, additional_headers={"Authorization": f"Bearer {key}"}, proxy=None) as connection:
            await speak_stream(connection, TEXT)
            assert (await hear_all(connection))[1] == 1000
        return
    async with open_socket(stack, acme, STREAM, key=None if where == "header" else "", query=query) as connection:
        await speak_stream(connection, TEXT, **first)
        frames, code, _ = await hear_all(connection)
    assert code == 1000
    assert read_audio(frames)


@pytest.mark.parametrize("socket", [STREAM, MULTI])
async def test_a_first_message_without_a_key_that_opens_is_told_so(
    stack: RunningStack, acme: Speaking, socket: str
) -> None:
    """A wrong one, or none: the reason, then 1008."""
    for message, error in (
        ({"xi_api_key": "tr_wrong"}, "invalid_api_key"),
        ({"authorization": "Bearer \ud800"}, "invalid_api_key"),
        ({"xi-api-key": 5}, "needs_authorization"),
        ({}, "needs_authorization"),
    ):
        async with open_socket(stack, acme, socket, key="") as connection:
            await say(connection, text=" ", **message)
            frames, code, reason = await hear_all(connection)
        assert (frames[-1]["error"], code) == (error, 1008)
        assert frames[-1]["message"]
        assert reason


async def test_the_sdk_is_told_of_a_wrong_key_and_an_unknown_voice_in_a_message(
    stack: RunningStack, acme: Speaking
) -> None:
    """It raises what the last message says."""
    for changed, error in (({"key": "tr_wrong"}, "invalid_api_key"), ({"voice": str(uuid4())}, "voice_not_found")):
        async with open_socket(stack, acme, STREAM, **changed) as connection:
            await speak_stream(connection, TEXT)
            frames, code, reason = await hear_all(connection)
        assert (frames[-1]["error"], frames[-1]["code"], code) == (error, 1008, 1008)
        assert reason in frames[-1]["message"]


async def test_voice_agents_are_refused_before_the_upgrade(
    stack: RunningStack, acme: Speaking, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """They do not try a 401 or 404 again; another tenant's voice is an unknown one, in the same words."""
    other = await make_tenant(f"other {uuid4()}")
    foreign, unknown = str(await make_voice(other.id, embedding=embed("high"))), str(uuid4())
    messages = []
    for changed, status, code in (
        ({"key": "tr_wrong"}, 401, "invalid_api_key"),
        ({"voice": foreign}, 404, "voice_not_found"),
        ({"voice": unknown}, 404, "voice_not_found"),
    ):
        with pytest.raises(InvalidStatus) as caught:
            async with open_socket(stack, acme, MULTI, **changed):
                pass
        detail = json.loads(caught.value.response.body)["detail"]
        assert (caught.value.response.status_code, detail["status"]) == (status, code)
        messages.append(detail["message"].replace(foreign, "X").replace(unknown, "X"))
    assert messages[1] == messages[2]


@pytest.mark.parametrize(
    "query", ["output_format=mpeg", "output_format=pcm_24000&inactivity_timeout=999", "language_code=zh-CN"]
)
@pytest.mark.parametrize("socket", [STREAM, MULTI])
async def test_a_parameter_that_cannot_be_read_is_named(
    stack: RunningStack, acme: Speaking, socket: str, query: str
) -> None:
    """In a message, and in the close."""
    async with open_socket(stack, acme, socket, query=query) as connection:
        frames, code, reason = await hear_all(connection)
    assert code == 1008
    assert frames[-1]["param"] in query
    assert reason


@pytest.mark.parametrize(
    "text",
    ["<b>Hello</b> there.", "Hello\0 there\x07.", "Hello 😀 there.", "Grüße from Zürich.", "Thank you for calling."],
)
async def test_whatever_has_a_sound_is_spoken(stack: RunningStack, acme: Speaking, text: str) -> None:
    """And spelt back as it was written, whatever it is."""
    async with open_socket(stack, acme, STREAM) as connection:
        await speak_stream(connection, text)
        frames, code, _ = await hear_all(connection)
    assert code == 1000
    assert len(read_audio(frames)) > 0.2 * 48_000
    assert "".join(read_text(frames).split()) == "".join(text.split())


@pytest.mark.parametrize("text", ["😀", "…", "\u200b", "مرحبا بالعالم"])
async def test_what_has_no_sound_is_an_error_and_the_socket_goes_on(
    stack: RunningStack, acme: Speaking, text: str
) -> None:
    """The next context on it speaks."""
    async with open_socket(stack, acme) as connection:
        for context, written in (("mute", text), ("loud", TEXT)):
            await say(connection, text=written, context_id=context)
            await say(connection, context_id=context, flush=True)
            await say(connection, context_id=context, close_context=True)
            frames = await hear_final(connection, context)
            assert bool(frames[-1].get("error")) == (context == "mute")
            assert bool(read_audio(frames)) == (context == "loud")


async def test_a_stream_of_tokens_that_never_ends_is_ended(stack: RunningStack, acme: Speaking) -> None:
    """At the bound of a context, with the reason."""
    async with open_socket(stack, acme, STREAM) as connection:

        async def pour() -> None:
            for _ in range(200):
                await say(connection, text="word " * 1000)

        pouring = asyncio.create_task(pour())
        frames, code, _ = await hear_all(connection)
        pouring.cancel()
        await asyncio.gather(pouring, return_exceptions=True)
    assert (frames[-1]["error"], code) == ("max_character_limit_exceeded", 1008)


async def test_more_than_a_message_may_hold_is_refused_unread(stack: RunningStack, acme: Speaking) -> None:
    """Ten megabytes in one message: 1009, and the relay goes on."""
    async with open_socket(stack, acme) as connection:
        with pytest.raises(ConnectionClosed) as caught:
            await say(connection, text="x" * 10_000_000, context_id="a")
            await connection.recv()
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1009
    async with open_socket(stack, acme, STREAM) as connection:
        await speak_stream(connection, TEXT)
        assert (await hear_all(connection))[1] == 1000
