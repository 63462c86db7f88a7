"""LiveKit's ElevenLabs plugin: contexts on one socket for streams, HTTP for whole texts, and the words' times."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from _frame import LONG_TEXT, TEXT, UNKNOWN_VOICE, Stack, check_speech, read_pcm
from livekit.agents import APIConnectOptions, APIError, APIStatusError, tokenize
from livekit.agents.types import USERDATA_TIMED_TRANSCRIPT
from livekit.agents.voice.io import TimedString
from livekit.plugins.elevenlabs import TTS, VoiceSettings

RATE = 24_000
ONCE = APIConnectOptions(max_retry=0, timeout=10)


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as made:
        yield made


def make_tts(stack: Stack, session: aiohttp.ClientSession, **changed: object) -> TTS:
    """The plugin, told another base URL."""
    given = {
        "base_url": f"{stack.http}/elevenlabs/v1",
        "api_key": stack.key,
        "voice_id": stack.voices["low"],
        "encoding": "pcm_24000",
        "http_session": session,
        **changed,
    }
    return TTS(**given)  # type: ignore[arg-type]


@pytest.fixture
async def tts(stack: Stack, session: aiohttp.ClientSession) -> AsyncIterator[TTS]:
    made = make_tts(stack, session)
    yield made
    await made.aclose()


async def synthesize(tts: TTS, text: str = TEXT) -> bytes:
    """A whole text, over HTTP."""
    async with tts.synthesize(text, conn_options=ONCE) as stream:
        return b"".join([bytes(event.frame.data) async for event in stream])


async def stream_text(tts: TTS, pieces: list[str]) -> tuple[bytes, list[TimedString]]:
    """A text in pieces, over the socket: its samples, and its words with their times."""
    pcm, words = b"", []
    async with tts.stream(conn_options=ONCE) as stream:
        for piece in pieces:
            stream.push_text(piece)
        stream.end_input()
        async for event in stream:
            pcm += bytes(event.frame.data)
            words += event.frame.userdata.get(USERDATA_TIMED_TRANSCRIPT, [])
    return pcm, words


def split(text: str) -> list[str]:
    """As tokens of a language model."""
    return [text[place : place + 5] for place in range(0, len(text), 5)]


async def test_a_text_is_spoken_over_http(tts: TTS) -> None:
    """Its Content-Type begins with `audio/`, without which the plugin takes nothing."""
    check_speech(read_pcm(await synthesize(tts)), RATE, seconds=(1.5, 8))


@pytest.mark.parametrize("encoding", ["mp3_22050_32", "mp3_44100_128", "opus_48000_64", "pcm_16000", "pcm_44100"])
async def test_every_encoding_is_heard_whole(stack: Stack, session: aiohttp.ClientSession, encoding: str) -> None:
    """Over HTTP and over the socket."""
    tts = make_tts(stack, session, encoding=encoding)
    rate = tts.sample_rate
    for pcm in (await synthesize(tts), (await stream_text(tts, [TEXT]))[0]):
        check_speech(read_pcm(pcm), rate, seconds=(1.5, 8))
    await tts.aclose()


async def test_a_stream_is_spoken_word_by_word(tts: TTS) -> None:
    """The words come in the spelling of the text, and their times never go back, over both sentences."""
    pcm, words = await stream_text(tts, split(TEXT))
    check_speech(read_pcm(pcm), RATE, seconds=(1.5, 8))
    assert "".join(words).split() == TEXT.split()
    starts = [word.start_time for word in words]
    ends = [word.end_time for word in words]
    assert starts == sorted(starts)
    assert all(start <= end for start, end in zip(starts, ends, strict=True))
    seconds = len(pcm) / 2 / RATE
    assert starts[-1] < seconds
    assert ends[-1] <= seconds + 0.02
    # The second sentence begins where the first has ended, and not at zero again.
    assert starts[2] > 0.3


async def test_tokens_without_auto_mode_are_the_same_text(stack: Stack, session: aiohttp.ClientSession) -> None:
    """The plugin sends words then, and flushes at the end alone."""
    tts = make_tts(
        stack,
        session,
        auto_mode=False,
        word_tokenizer=tokenize.basic.WordTokenizer(ignore_punctuation=False),
        voice_settings=VoiceSettings(stability=0.5, similarity_boost=0.75),
        chunk_length_schedule=[50, 80],
    )
    pcm, words = await stream_text(tts, split(TEXT))
    check_speech(read_pcm(pcm), RATE, seconds=(1.5, 8))
    assert "".join(words).split() == TEXT.split()
    await tts.aclose()


async def test_streams_of_one_connection_do_not_mix(tts: TTS) -> None:
    """Four at once, each the same as alone."""
    texts = [f"This is stream number {number}. The weather is fine." for number in ("one", "two", "three", "four")]
    alone = [(await stream_text(tts, [text]))[0] for text in texts]
    together = await asyncio.gather(*(stream_text(tts, [text]) for text in texts))
    assert [pcm for pcm, _ in together] == alone


async def test_twenty_interruptions_leave_the_next_turn_alone(tts: TTS) -> None:
    """All on one socket, which holds five open contexts: each is closed in the middle of a sentence."""
    alone, _ = await stream_text(tts, [TEXT])
    for _ in range(20):
        async with tts.stream(conn_options=ONCE) as stream:
            stream.push_text(LONG_TEXT)
            stream.flush()
            async for _event in stream:
                break
    assert (await stream_text(tts, [TEXT]))[0] == alone


@pytest.mark.parametrize(("changed", "status"), [("key", 401), (UNKNOWN_VOICE, 404), ("foreign", 404)])
async def test_keys_and_voices_that_open_nothing_have_their_status(
    stack: Stack, session: aiohttp.ClientSession, changed: str, status: int
) -> None:
    """Over HTTP and before the upgrade, so that the plugin does not try again."""
    voice = stack.foreign_voice if changed == "foreign" else changed
    more = {"api_key": stack.wrong_key} if changed == "key" else {"voice_id": voice}
    tts = make_tts(stack, session, **more)
    with pytest.raises(APIStatusError) as refused:
        await synthesize(tts)
    assert refused.value.status_code == status
    with pytest.raises(APIStatusError) as refused:
        await stream_text(tts, [TEXT])
    assert (refused.value.status_code, refused.value.retryable) == (status, False)
    await tts.aclose()


async def test_a_text_without_a_sound_is_an_error(tts: TTS) -> None:
    """Told with its context, so that the next turn on the same socket speaks."""
    with pytest.raises(APIStatusError) as refused:
        await synthesize(tts, "😀")
    assert refused.value.status_code == 400
    with pytest.raises(APIError, match="Could not synthesize"):
        await stream_text(tts, ["😀🎉"])
    check_speech(read_pcm((await stream_text(tts, ["Thank you for calling."]))[0]), RATE, seconds=(0.3, 5))


async def test_a_text_that_is_too_long_is_an_error(tts: TTS) -> None:
    """Over HTTP with its status; on the socket it ends its own turn alone."""
    with pytest.raises(APIStatusError) as refused:
        await synthesize(tts, "x" * 40_001)
    assert refused.value.status_code == 400
    with pytest.raises(APIError):
        await stream_text(tts, ["word " * 2500])
    assert (await stream_text(tts, [TEXT]))[0]


async def test_breaks_are_heard_where_they_are_asked_for(stack: Stack, session: aiohttp.ClientSession) -> None:
    """The plugin sends tags whole."""
    tts = make_tts(stack, session, enable_ssml_parsing=True)
    plain, _ = await stream_text(tts, ["Good morning to you. ", "Good evening to you."])
    with_break, _ = await stream_text(tts, ["Good morning to you. ", '<break time="1.0s"/> ', "Good evening to you."])
    assert (len(with_break) - len(plain)) / 2 / RATE == pytest.approx(1.0, abs=0.3)
    await tts.aclose()


async def test_another_voice_is_another_connection(tts: TTS, stack: Stack) -> None:
    """`update_options`, as agents that change their voice have it."""
    low, _ = await stream_text(tts, [TEXT])
    tts.update_options(voice_id=stack.voices["high"])
    assert (await stream_text(tts, [TEXT]))[0] != low


async def test_voices_are_listed(tts: TTS, stack: Stack) -> None:
    """With what the plugin reads of them."""
    voices = {voice.id: (voice.name, voice.category) for voice in await tts.list_voices()}
    assert voices[stack.voices["low"]] == ("low", "cloned")
    assert stack.foreign_voice not in voices


async def test_a_connection_may_be_opened_before_it_is_needed(tts: TTS) -> None:
    """Prewarming opens no context."""
    tts.prewarm()
    assert (await stream_text(tts, [TEXT]))[0]
