"""LiveKit's Cartesia plugin: sentences into one context a turn, words back with their times, sockets from a pool."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import aiohttp
import pytest
from _frame import LONG_TEXT, TEXT, UNKNOWN_VOICE, Stack, check_speech, check_voice, read_pcm
from livekit.agents import APIConnectOptions, APIError, APIStatusError
from livekit.agents.types import USERDATA_TIMED_TRANSCRIPT
from livekit.plugins.cartesia import TTS

RATE = 24_000
ONCE = APIConnectOptions(max_retry=0, timeout=10)
SECONDS = (1.5, 8.0)


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """The plugin has one of its own only within an agent."""
    async with aiohttp.ClientSession() as made:
        yield made


def make_tts(stack: Stack, session: aiohttp.ClientSession, **changed: Any) -> TTS:
    """The plugin, told another base URL."""
    given = {"base_url": f"{stack.http}/cartesia", "api_key": stack.key, "voice": stack.alias, "http_session": session}
    return TTS(**{**given, **changed})


@pytest.fixture
async def tts(stack: Stack, session: aiohttp.ClientSession) -> AsyncIterator[TTS]:
    """With a socket that is ready."""
    made = make_tts(stack, session)
    made.prewarm()
    yield made
    await made.aclose()


async def stream(tts: TTS, pieces: Iterable[str]) -> tuple[bytes, list[Any]]:
    """A turn, pushed piece by piece: its samples and its timed words."""
    async with tts.stream(conn_options=ONCE) as turn:
        for piece in pieces:
            turn.push_text(piece)
        turn.end_input()
        frames = [event.frame async for event in turn]
    assert {(frame.sample_rate, frame.num_channels) for frame in frames} <= {(tts.sample_rate, 1)}
    words = [word for frame in frames for word in frame.userdata.get(USERDATA_TIMED_TRANSCRIPT, [])]
    return b"".join(bytes(frame.data) for frame in frames), words


async def synthesize(tts: TTS, text: str) -> bytes:
    """A text over HTTP."""
    async with tts.synthesize(text, conn_options=ONCE) as spoken:
        frames = [event.frame async for event in spoken]
    return b"".join(bytes(frame.data) for frame in frames)


async def test_a_turn_is_streamed_token_by_token(tts: TTS) -> None:
    """Its words come back in their spelling with rising times, and joined they are what was said."""
    pcm, words = await stream(tts, [TEXT[start : start + 4] for start in range(0, len(TEXT), 4)])
    check_speech(read_pcm(pcm), RATE, seconds=SECONDS)
    check_voice(read_pcm(pcm), RATE, "low")
    assert "".join(words).split() == TEXT.split()
    times = [time for word in words for time in (word.start_time, word.end_time)]
    assert times == sorted(times)
    assert 0 <= times[0] < times[-1] <= len(pcm) / 2 / RATE


async def test_a_text_is_spoken_over_http(tts: TTS) -> None:
    """The plugin's `synthesize`."""
    check_speech(read_pcm(await synthesize(tts, TEXT)), RATE, seconds=SECONDS)


@pytest.mark.parametrize("changed", [{"sample_rate": 16_000}, {"sample_rate": 44_100}, {"word_timestamps": False}])
async def test_its_options_are_followed(stack: Stack, session: aiohttp.ClientSession, changed: dict[str, Any]) -> None:
    """Another rate, and no words."""
    tts = make_tts(stack, session, **changed)
    pcm, words = await stream(tts, [TEXT])
    check_speech(read_pcm(pcm), tts.sample_rate, seconds=SECONDS)
    assert bool(words) == ("word_timestamps" not in changed)
    await tts.aclose()


async def test_speed_volume_and_emotion_are_taken(stack: Stack, session: aiohttp.ClientSession) -> None:
    """Of which the speed is heard."""
    plain, fast = make_tts(stack, session), make_tts(stack, session, speed=1.5, volume=1.2, emotion="Happy")
    ratio = len((await stream(plain, [TEXT]))[0]) / len((await stream(fast, [TEXT]))[0])
    assert 1.45 < ratio < 1.55
    for tts in (plain, fast):
        await tts.aclose()


async def test_two_turns_side_by_side_are_what_they_are_alone(stack: Stack, session: aiohttp.ClientSession) -> None:
    """Byte for byte, in two voices; the plugin takes a socket for each."""
    both = [make_tts(stack, session, voice=stack.voices[name]) for name in ("low", "high")]
    alone = [await stream(tts, [TEXT]) for tts in both]
    together = await asyncio.gather(*(stream(tts, [TEXT]) for tts in both))
    assert [pcm for pcm, _ in together] == [pcm for pcm, _ in alone]
    for tts in both:
        await tts.aclose()


async def test_twenty_interruptions_leave_nothing_behind(tts: TTS) -> None:
    """Each in the middle of a sentence; the turn after them is heard as if nothing had been."""
    alone, _ = await stream(tts, [TEXT])
    for _ in range(20):
        async with tts.stream(conn_options=ONCE) as turn:
            turn.push_text(LONG_TEXT)
            turn.end_input()
            async for _event in turn:
                break
    assert (await stream(tts, [TEXT]))[0] == alone


async def test_a_turn_of_nothing_but_tools_is_no_error(tts: TTS) -> None:
    """It has no text; the plugin ends it with a space, and the next turn uses the same socket."""
    assert await stream(tts, []) == (b"", [])
    check_speech(read_pcm((await stream(tts, [TEXT]))[0]), RATE, seconds=SECONDS)


async def test_a_pause_within_a_turn_is_longer_than_a_context_lives(tts: TTS) -> None:
    """While a tool is asked; the words go on counting where they were."""
    first, second = TEXT.partition(". ")[2], "But the answer, after all, is forty two."
    async with tts.stream(conn_options=ONCE) as turn:
        # The plugin sends a sentence when it has seen that another one has begun.
        turn.push_text(f"{first} {second[:20]}")
        heard, words, pushed = b"", [], False
        async for event in turn:
            heard += bytes(event.frame.data)
            words += event.frame.userdata.get(USERDATA_TIMED_TRANSCRIPT, [])
            if not pushed and len(words) >= len(first.split()):
                pushed = True
                await asyncio.sleep(3.5)
                turn.push_text(second[20:])
                turn.end_input()
    check_speech(read_pcm(heard), RATE, seconds=(1.0, 8.0))
    # The plugin forgets the space behind a word when it has nothing yet to put it before.
    assert "".join("".join(words).split()) == "".join(f"{first}{second}".split())
    times = [time for word in words for time in (word.start_time, word.end_time)]
    assert times == sorted(times)


@pytest.mark.parametrize(
    ("changed", "text", "says"),
    [
        ({"voice": UNKNOWN_VOICE}, TEXT, "voice_not_found"),
        ({"voice": [0.1] * 192}, TEXT, "consent"),
        ({"language": "de"}, TEXT, "language"),
        ({"pronunciation_dict_id": "pd_1"}, TEXT, "pronunciation_dict_id"),
        ({}, "😀🎉", "transcript_empty"),
    ],
)
async def test_what_cannot_be_spoken_is_raised_with_its_reason(
    stack: Stack, session: aiohttp.ClientSession, changed: dict[str, Any], text: str, says: str
) -> None:
    """And not as a turn that has merely no audio."""
    tts = make_tts(stack, session, **changed)
    with pytest.raises(APIError, match=says):
        await stream(tts, [text])
    with pytest.raises(APIStatusError) as refused:
        await synthesize(tts, text)
    assert refused.value.status_code in (400, 404)
    await tts.aclose()


async def test_another_tenants_voice_is_unknown(stack: Stack, session: aiohttp.ClientSession) -> None:
    """As one that nobody has."""
    tts = make_tts(stack, session, voice=stack.foreign_voice)
    with pytest.raises(APIError, match="voice_not_found"):
        await stream(tts, [TEXT])
    await tts.aclose()


async def test_a_wrong_key_has_its_status(stack: Stack, session: aiohttp.ClientSession) -> None:
    """Over the socket and over HTTP."""
    tts = make_tts(stack, session, api_key=stack.wrong_key)
    for speaking in (stream(tts, [TEXT]), synthesize(tts, TEXT)):
        with pytest.raises(APIStatusError) as refused:
            await speaking
        assert refused.value.status_code == 401
    await tts.aclose()


async def test_a_text_that_is_too_long_over_http_is_refused(tts: TTS) -> None:
    """In sentences it is not too long."""
    with pytest.raises(APIStatusError) as refused:
        await synthesize(tts, "word " * 4000)
    assert refused.value.status_code == 400


async def test_after_a_drop_the_plugin_connects_again(tts: TTS) -> None:
    """A turn whose socket drops before anything was heard is spoken on another."""
    await stream(tts, [TEXT])
    for socket in list(tts._pool._available):
        socket._response.connection.transport.abort()
    again = APIConnectOptions(max_retry=2, timeout=10, retry_interval=0.1)
    async with tts.stream(conn_options=again) as turn:
        turn.push_text(TEXT)
        turn.end_input()
        pcm = b"".join([bytes(event.frame.data) async for event in turn])
    check_speech(read_pcm(pcm), RATE, seconds=SECONDS)
