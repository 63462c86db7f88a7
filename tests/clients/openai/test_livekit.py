"""LiveKit's OpenAI plugin: it asks for events, and decides by the Content-Type how to read what comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from _frame import LONG_TEXT, TEXT, UNKNOWN_VOICE, Stack, check_speech, read_pcm
from livekit.agents import APIConnectOptions, APIStatusError
from livekit.plugins.openai import TTS

RATE = 24_000
ONCE = APIConnectOptions(max_retry=0, timeout=10)


def make_tts(stack: Stack, **changed: object) -> TTS:
    """The plugin, told another base URL."""
    given = {"base_url": f"{stack.http}/openai/v1", "api_key": stack.key, "voice": stack.alias, **changed}
    return TTS(**given)  # type: ignore[arg-type]


@pytest.fixture
async def tts(stack: Stack) -> AsyncIterator[TTS]:
    """With a connection that is ready."""
    made = make_tts(stack)
    made.prewarm()
    yield made
    await made.aclose()


async def synthesize(tts: TTS, text: str = TEXT) -> bytes:
    """All samples of a text."""
    async with tts.synthesize(text, conn_options=ONCE) as stream:
        frames = [event.frame async for event in stream]
    assert {(frame.sample_rate, frame.num_channels) for frame in frames} == {(RATE, 1)}
    return b"".join(bytes(frame.data) for frame in frames)


async def test_a_text_is_spoken(tts: TTS) -> None:
    """As the plugin is by default: mp3 in events."""
    check_speech(read_pcm(await synthesize(tts)), RATE, seconds=(1.5, 8))


@pytest.mark.parametrize(
    ("model", "name"),
    [("gpt-4o-mini-tts", name) for name in ("mp3", "opus", "aac", "flac", "wav")]
    + [("tts-1", "mp3"), ("tts-1", "pcm")],
)
async def test_every_format_is_heard_whole(model: str, name: str, stack: Stack) -> None:
    """In events, and for the older models as plain audio."""
    plain, asked = make_tts(stack, response_format="pcm"), make_tts(stack, response_format=name, model=model)
    duration = len(await synthesize(plain)) / 2 / RATE
    heard = read_pcm(await synthesize(asked))
    check_speech(heard, RATE, seconds=(duration - 0.2, duration + 0.2))
    await plain.aclose()
    await asked.aclose()


async def test_what_goes_wrong_has_its_status(stack: Stack) -> None:
    """A wrong key, an unknown voice, another tenant's, a text without a sound."""
    cases = [
        ({"api_key": stack.wrong_key}, TEXT, 401),
        ({"voice": UNKNOWN_VOICE}, TEXT, 404),
        ({"voice": stack.foreign_voice}, TEXT, 404),
        ({"voice": "ash"}, TEXT, 404),
        ({}, "😀", 400),
    ]
    for changed, text, status in cases:
        tts = make_tts(stack, **changed)
        with pytest.raises(APIStatusError) as refusal:
            await synthesize(tts, text)
        assert refusal.value.status_code == status
        await tts.aclose()


async def test_an_interrupted_speech_leaves_the_next_one_alone(tts: TTS) -> None:
    """Ten that are closed after their first frame, then a whole one."""
    for _ in range(10):
        async with tts.synthesize(LONG_TEXT, conn_options=ONCE) as stream:
            async for _event in stream:
                break
    check_speech(read_pcm(await synthesize(tts)), RATE, seconds=(1.5, 8))


async def test_ten_at_once_are_spoken(tts: TTS) -> None:
    """Each the same as alone."""
    alone = await synthesize(tts)
    assert set(await asyncio.gather(*(synthesize(tts) for _ in range(10)))) == {alone}


async def test_a_new_voice_holds_for_the_next_text(tts: TTS, stack: Stack) -> None:
    """`update_options`, as agents that change their voice have it."""
    low = await synthesize(tts)
    tts.update_options(voice=stack.voices["high"])
    assert await synthesize(tts) != low


async def test_the_greeting_opens_a_connection(stack: Stack) -> None:
    """What `prewarm` asks for, of which the plugin hides whether it works."""
    async with aiohttp.ClientSession() as session, session.get(f"{stack.http}/openai/v1/") as answer:
        assert answer.status == 200
