"""Both WebSockets of a running relay and worker: who comes in, who is told why not, what is left when they go."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.conftest import DEADLINE_S, MakeTenant, MakeVoice, RunningStack, wait_until
from tests.relay.dialects.elevenlabs.conftest import Speaking, embed
from tests.relay.dialects.elevenlabs.desk import read_audio, read_text
from tests.system.conftest import LONG_SENTENCE

ONE_STACK = True
MULTI, STREAM = "multi-stream-input", "stream-input"
TEXT = "Good morning. This is a short test. "
LONG = f"{LONG_SENTENCE}. " * 10


@asynccontextmanager
async def open_socket(
    stack: RunningStack,
    acme: Speaking,
    socket: str = MULTI,
    *,
    key: str | None = None,
    voice: str = "",
    query: str = "",
) -> AsyncIterator[ClientConnection]:
    """A connection; with an empty `key` no header brings one."""
    key = acme.tenant.key if key is None else key
    url = f"{stack.relay_url.replace('http', 'ws')}/elevenlabs/v1/text-to-speech/{voice or acme.voice}/{socket}"
    headers = {"xi-api-key": key} if key else {}
    query = query or "output_format=pcm_24000"
    async with connect(f"{url}?{query}", additional_headers=headers, max_size=2**24, proxy=None) as connection:
        yield connection


async def say(connection: ClientConnection, **message: Any) -> None:
    await connection.send(json.dumps(message))


async def speak_stream(connection: ClientConnection, text: str, **first: Any) -> None:
    """As the SDK does it; who is sent away meanwhile reads why."""
    with suppress(ConnectionClosed):
        await say(connection, text=" ", voice_settings=None, try_trigger_generation=True, **first)
        await say(connection, text=text, try_trigger_generation=True)
        await say(connection, text="")


async def hear_all(connection: ClientConnection) -> tuple[list[dict[str, Any]], int, str]:
    """Every frame up to the close, its code and its reason."""
    frames: list[dict[str, Any]] = []
    async with asyncio.timeout(DEADLINE_S):
        try:
            while True:
                frames.append(json.loads(await connection.recv()))
        except ConnectionClosed as closed:
            assert closed.rcvd is not None
            return frames, closed.rcvd.code, closed.rcvd.reason


async def hear_final(connection: ClientConnection, context: str | None = None) -> list[dict[str, Any]]:
    """Every frame up to the last one of a context."""
    frames: list[dict[str, Any]] = []
    async with asyncio.timeout(DEADLINE_S):
        while not (frames and frames[-1].get("isFinal") and frames[-1].get("contextId") == context):
            frames.append(json.loads(await connection.recv()))
    return frames


def contexts(stack: RunningStack) -> float:
    lines = httpx2.get(f"{stack.metrics_urls['relay']}/metrics").text.splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("timbrelay_contexts ")))


async def test_a_stream_is_spoken_and_closed(stack: RunningStack, acme: Speaking) -> None:
    """The text comes back character by character, as long as the audio; then 1000."""
    async with open_socket(stack, acme, STREAM) as connection:
        await speak_stream(connection, TEXT)
        frames, code, _ = await hear_all(connection)
    pcm = read_audio(frames)
    assert (code, frames[-1]["isFinal"]) == (1000, True)
    assert len(pcm) > 48_000
    assert read_text(frames) == TEXT
    clock_ms = sum(a["charStartTimesMs"][-1] + a["charDurationsMs"][-1] for f in frames if (a := f["alignment"]))
    assert clock_ms == round(len(pcm) / 48)


async def test_times_are_exact_after_a_minute(stack: RunningStack, acme: Speaking) -> None:
    """A clock that adds up what it is told stands where the audio does (FM8, FM10)."""
    text = "The weather is fine today, and tomorrow it will be better. " * 24
    async with open_socket(stack, acme) as connection:
        await say(connection, text=" ", context_id="a")
        await say(connection, text=text, context_id="a")
        await say(connection, context_id="a", flush=True)
        await say(connection, context_id="a", close_context=True)
        frames = await hear_final(connection, "a")
    pcm = read_audio(frames)
    assert len(pcm) > 60 * 48_000
    clock_ms, words = 0, [0]
    for frame in frames:
        if alignment := frame["alignment"]:
            starts = zip(alignment["chars"], alignment["charStartTimesMs"], strict=True)
            words += [clock_ms + start for char, start in starts if char == " "]
            clock_ms += alignment["charStartTimesMs"][-1] + alignment["charDurationsMs"][-1]
    assert clock_ms == round(len(pcm) / 48)
    assert words == sorted(words)
    assert len(words) - 1 == len(text.split())
    assert read_text(frames) == text


@pytest.mark.parametrize("format", ["ulaw_8000", "alaw_8000", "pcm_8000", "pcm_44100", "mp3_22050_32", "opus_48000_64"])
async def test_the_format_of_the_query_is_honoured(stack: RunningStack, acme: Speaking, format: str) -> None:
    """As long as the same text is in plain samples."""
    async with open_socket(stack, acme, STREAM) as connection:
        await speak_stream(connection, TEXT)
        plain = read_audio((await hear_all(connection))[0])
    async with open_socket(stack, acme, STREAM, query=f"output_format={format}") as connection:
        await speak_stream(connection, TEXT)
        frames, code, _ = await hear_all(connection)
    seconds, audio = len(plain) / 48_000, read_audio(frames)
    rates = {"ulaw_8000": 8000, "alaw_8000": 8000, "pcm_8000": 16_000, "pcm_44100": 88_200, "mp3_22050_32": 4000}
    assert code == 1000
    if format in rates:
        assert len(audio) == pytest.approx(seconds * rates[format], rel=0.1)
    else:
        assert audio.startswith(b"OggS")


async def test_contexts_are_what_each_is_alone(stack: RunningStack, acme: Speaking) -> None:
    """To the byte, though they are spoken at once (CQ1)."""
    texts = {f"turn {n}": f"This is turn number {n}. The weather is fine. " for n in ("one", "two", "three", "four")}
    alone: dict[str, bytes] = {}
    async with open_socket(stack, acme) as connection:
        for context, text in texts.items():
            await say(connection, text=text, context_id=context)
            await say(connection, context_id=context, flush=True)
            await say(connection, context_id=context, close_context=True)
            alone[context] = read_audio(await hear_final(connection, context), context)
    async with open_socket(stack, acme) as connection:
        for context in texts:
            await say(connection, text=" ", context_id=context)
        for context, text in texts.items():
            await say(connection, text=text, context_id=context)
        for context in texts:
            await say(connection, context_id=context, flush=True)
            await say(connection, context_id=context, close_context=True)
        frames: list[dict[str, Any]] = []
        async with asyncio.timeout(DEADLINE_S):
            while sum(bool(frame.get("isFinal")) for frame in frames) < len(texts):
                frames.append(json.loads(await connection.recv()))
    assert {context: read_audio(frames, context) for context in texts} == alone
    for context, text in texts.items():
        assert read_text([frame for frame in frames if frame["contextId"] == context]) == text


async def test_twenty_interruptions_leave_nothing(stack: RunningStack, acme: Speaking) -> None:
    """In the way of Pipecat, then in the way of LiveKit; the one after them speaks (CQ5, CQ10)."""
    async with open_socket(stack, acme) as connection:
        for number in range(20):
            context = f"turn {number}"
            await say(connection, text=" ", context_id=context)
            await say(connection, text=LONG, context_id=context, flush=number % 2 == 0)
            if number % 2:
                await say(connection, context_id=context, flush=True)
                await say(connection, context_id=context, close_context=True)
            await say(connection, context_id=context, close_context=True)
            if number % 2 == 0:
                await say(connection, context_id=context, close_context=True)
        await say(connection, text=" ", context_id="last")
        await say(connection, text="Thank you for calling. ", context_id="last")
        await say(connection, context_id="last", flush=True)
        await say(connection, context_id="last", close_context=True)
        frames = await hear_final(connection, "last")
        assert read_audio(frames, "last")
        finals = [frame["contextId"] for frame in frames if frame.get("isFinal")]
        assert sorted(finals) == sorted({*(f"turn {number}" for number in range(20)), "last"})
        for place, frame in enumerate(frames):
            if frame.get("isFinal"):
                assert frame["contextId"] not in {later["contextId"] for later in frames[place + 1 :]}
        await asyncio.to_thread(wait_until, lambda: contexts(stack) == 0)


async def test_whom_livekit_interrupts_stops_at_once(stack: RunningStack, acme: Speaking) -> None:
    """Each sentence with its flush, the close in the middle of the first: no worker goes on with the others."""
    async with open_socket(stack, acme, query="output_format=pcm_24000&auto_mode=true") as connection:
        for number in range(20):
            await say(connection, text=" ", context_id=f"turn {number}", voice_settings={})
            await say(connection, text=LONG, context_id=f"turn {number}", flush=True)
            frame: dict[str, Any] = {}
            while frame.get("contextId") != f"turn {number}":
                frame = json.loads(await connection.recv())
            await say(connection, context_id=f"turn {number}", close_context=True)
            assert len(await hear_final(connection, f"turn {number}")) < 60
        await asyncio.to_thread(wait_until, lambda: contexts(stack) == 0)


async def test_a_client_that_is_gone_costs_nothing(stack: RunningStack, acme: Speaking) -> None:
    """Its contexts go with it."""
    async with open_socket(stack, acme) as connection:
        await say(connection, text=LONG, context_id="a", flush=True)
        await connection.recv()
        assert await asyncio.to_thread(contexts, stack) == 1
    await asyncio.to_thread(wait_until, lambda: contexts(stack) == 0)


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


@pytest.mark.parametrize("query", ["output_format=mpeg", "output_format=pcm_24000&inactivity_timeout=999"])
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


async def test_breaks_are_heard(stack: RunningStack, acme: Speaking) -> None:
    """Two seconds of nothing between two sentences."""
    query = "output_format=pcm_24000&enable_ssml_parsing=true"
    lengths = []
    for text in ("Good morning. Good evening. ", 'Good morning. <break time="2s"/> Good evening. '):
        async with open_socket(stack, acme, STREAM, query=query) as connection:
            await speak_stream(connection, text)
            lengths.append(len(read_audio((await hear_all(connection))[0])))
    assert lengths[1] - lengths[0] == 2 * 48_000


async def test_a_frame_is_one_message_of_base64(stack: RunningStack, acme: Speaking) -> None:
    """80 ms each, and no half samples (FM2)."""
    async with open_socket(stack, acme, STREAM) as connection:
        await speak_stream(connection, TEXT)
        frames, _, _ = await hear_all(connection)
    sizes = [len(base64.b64decode(frame["audio"])) for frame in frames if frame["audio"]]
    assert all(size % 2 == 0 and 0 < size <= 3840 for size in sizes)
