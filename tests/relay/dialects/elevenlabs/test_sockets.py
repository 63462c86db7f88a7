"""Both WebSockets of a running relay and worker: what is heard, and what is left when a client goes."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

from tests.conftest import DEADLINE_S, RunningStack, wait_until
from tests.relay.dialects.elevenlabs.conftest import Speaking
from tests.relay.dialects.elevenlabs.desk import read_audio, read_text
from tests.relay.dialects.elevenlabs.sockets import (
    LONG,
    STREAM,
    TEXT,
    contexts,
    hear_all,
    hear_final,
    open_socket,
    say,
    speak_stream,
)

ONE_STACK = True


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
