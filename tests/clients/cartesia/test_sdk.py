"""The Cartesia SDK: speech whole, in events and over its WebSocket; voices, access tokens, and what goes wrong."""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import av
import cartesia
import numpy as np
import pytest
from _frame import LONG_TEXT, TEXT, UNKNOWN_VOICE, Stack, check_speech, check_voice, read_pcm
from cartesia import AsyncCartesia, Cartesia

RATE = 24_000
MODEL = "sonic-3"
RAW: dict[str, Any] = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": RATE}
SECONDS = (1.5, 8.0)


def address(stack: Stack) -> dict[str, Any]:
    """What the SDK is told instead of Cartesia's own base URL."""
    return {"base_url": f"{stack.http}/cartesia", "websocket_base_url": f"{stack.ws}/cartesia", "max_retries": 0}


@pytest.fixture
def client(stack: Stack) -> Iterator[Cartesia]:
    """The SDK with tenant A's key."""
    with Cartesia(api_key=stack.key, **address(stack)) as made:
        yield made


@asynccontextmanager
async def talk(stack: Stack, **changed: Any) -> AsyncIterator[Any]:
    """The WebSocket of the asynchronous SDK."""
    given = {"api_key": stack.key, **address(stack), **changed}
    async with AsyncCartesia(**given) as made, made.tts.websocket_connect() as connection:
        yield connection


def make_context(connection: Any, speaker: str, **more: Any) -> Any:
    """A context with all its defaults; waiting for a frame has an end."""
    style = {"model_id": MODEL, "voice": {"mode": "id", "id": speaker}, "output_format": RAW, "language": "en"}
    return connection.context(timeout=20, **{**style, **more})


async def hear(context: Any) -> list[Any]:
    """Its events, to the end."""
    async with asyncio.timeout(30):
        return [event async for event in context.receive()]


def join(events: list[Any]) -> bytes:
    """The audio of the events, which end with `done`."""
    assert events[-1].type == "done", events[-1]
    return b"".join(event.audio for event in events if event.type == "chunk")


async def speak(connection: Any, voice: str, text: str = TEXT, **more: Any) -> bytes:
    """A text in a context of its own."""
    context = make_context(connection, voice, **more)
    await context.push(text)
    await context.no_more_inputs()
    return join(await hear(context))


def generate(client: Cartesia, voice: Any, text: str = TEXT, **more: Any) -> bytes:
    """A text over HTTP."""
    wanted = {"model_id": MODEL, "transcript": text, "voice": voice, "output_format": RAW, **more}
    content: bytes = client.tts.generate(**wanted).read()
    return content


def decode(content: bytes) -> tuple[np.ndarray, int]:
    """A file's samples and their rate."""
    with av.open(io.BytesIO(content)) as container:
        rate = container.streams.audio[0].rate
        mono = av.AudioResampler("flt", "mono", rate)
        frames = [made for frame in container.decode(audio=0) for made in mono.resample(frame)]
    return np.concatenate([frame.to_ndarray().reshape(-1) for frame in frames]), rate


def test_a_text_is_spoken_by_id_object_and_alias(client: Cartesia, stack: Stack) -> None:
    """All name the same voice, in whichever way the versions of the SDK do it."""
    low = generate(client, stack.voices["low"], language="en")
    check_speech(read_pcm(low), RATE, seconds=SECONDS)
    check_voice(read_pcm(low), RATE, "low")
    for voice in ({"id": stack.voices["low"]}, {"mode": "id", "id": stack.voices["low"]}, stack.alias):
        assert generate(client, voice) == low
    check_voice(read_pcm(generate(client, stack.voices["high"])), RATE, "high")


@pytest.mark.parametrize(
    "format",
    [
        {"container": "wav", "encoding": "pcm_s16le", "sample_rate": 16000},
        {"container": "wav", "encoding": "pcm_f32le", "sample_rate": 44100},
        {"container": "wav", "encoding": "pcm_mulaw", "sample_rate": 8000},
        {"container": "wav", "encoding": "pcm_alaw", "sample_rate": 8000},
        {"container": "mp3", "bit_rate": 128000, "sample_rate": 44100},
        {"container": "mp3", "bit_rate": 32000, "sample_rate": 24000},
    ],
)
def test_every_container_is_heard_whole(client: Cartesia, stack: Stack, format: dict[str, Any]) -> None:
    """As long as the samples, within what a codec adds."""
    duration = len(generate(client, stack.alias)) / 2 / RATE
    samples, rate = decode(generate(client, stack.alias, output_format=format))
    assert rate == format["sample_rate"]
    check_speech(samples, rate, seconds=(duration - 0.15, duration + 0.15))


@pytest.mark.parametrize(("encoding", "dtype"), [("pcm_s16le", "<i2"), ("pcm_f32le", "<f4")])
@pytest.mark.parametrize("rate", [8000, 22050, 48000])
def test_raw_samples_have_their_rate(client: Cartesia, stack: Stack, encoding: str, dtype: str, rate: int) -> None:
    """Whole samples, as long as they should be."""
    duration = len(generate(client, stack.alias)) / 2 / RATE
    format = {"container": "raw", "encoding": encoding, "sample_rate": rate}
    samples = np.frombuffer(generate(client, stack.alias, output_format=format), dtype).astype(np.float32)
    samples = samples / 32768 if dtype == "<i2" else samples
    check_speech(samples, rate, seconds=(duration - 0.01, duration + 0.01))


def test_a_response_is_streamed(client: Cartesia, stack: Stack) -> None:
    """It can be closed in its middle, and the next one is whole."""
    wanted = {"model_id": MODEL, "transcript": LONG_TEXT, "voice": stack.alias, "output_format": RAW}
    with client.tts.with_streaming_response.generate(**wanted) as answer:
        assert len(next(answer.iter_bytes(4096))) > 0
    check_speech(read_pcm(generate(client, stack.alias)), RATE, seconds=SECONDS)


def test_events_carry_audio_and_words(client: Cartesia, stack: Stack) -> None:
    """The same samples as without events, and each word once, in order, within the audio."""
    wanted = {"model_id": MODEL, "transcript": TEXT, "voice": stack.alias, "output_format": RAW}
    events = list(client.tts.generate_sse(**wanted, add_timestamps=True, context_id="mine"))
    assert join(events) == generate(client, stack.alias)
    assert {event.context_id for event in events} == {"mine"}
    check_words(events)


def check_words(events: list[Any]) -> None:
    told = [event.word_timestamps for event in events if event.type == "timestamps"]
    assert [word for times in told for word in times.words] == TEXT.split()
    times = [time for part in told for pair in zip(part.start, part.end, strict=True) for time in pair]
    assert times == sorted(times)
    assert 0 <= times[0] < times[-1] <= len(join(events)) / 2 / RATE


async def test_a_turn_streamed_token_by_token_is_the_whole_text(stack: Stack) -> None:
    """Byte for byte, with the words and their times."""
    async with talk(stack) as connection:
        whole = await speak(connection, stack.alias)
        check_speech(read_pcm(whole), RATE, seconds=SECONDS)
        context = make_context(connection, stack.alias, add_timestamps=True)
        for start in range(0, len(TEXT), 3):
            await context.push(TEXT[start : start + 3])
        await context.no_more_inputs()
        events = await hear(context)
    assert join(events) == whole
    check_words(events)


def test_a_context_without_defaults_ends_with_others(client: Cartesia, stack: Stack) -> None:
    """The synchronous SDK; `no_more_inputs` fills in a voice and a format of its own, which count for nothing."""
    with client.tts.websocket_connect() as connection:
        context = connection.context(timeout=20)
        for part in TEXT.partition(". ")[::2]:
            context.send(
                model_id=MODEL,
                transcript=f"{part}. ",
                voice={"mode": "id", "id": stack.alias},
                output_format=RAW,
                continue_=True,
            )
        context.no_more_inputs()
        check_speech(read_pcm(join(list(context.receive()))), RATE, seconds=SECONDS)


def test_the_older_interface_speaks_as_well(client: Cartesia, stack: Stack) -> None:
    """`websocket().send`, in a stream and at once."""
    connection = client.tts.websocket()
    wanted = {"model_id": MODEL, "transcript": TEXT, "voice": {"id": stack.alias}, "output_format": RAW}
    heard = b"".join(output.audio or b"" for output in connection.send(**wanted, stream=True))
    whole = connection.send(**wanted, stream=False, add_timestamps=True)
    assert whole.audio == heard
    assert whole.word_timestamps["words"] == TEXT.split()
    connection.close()


async def test_two_contexts_side_by_side_are_what_they_are_alone(stack: Stack) -> None:
    """Byte for byte."""
    async with talk(stack) as connection:
        alone = [await speak(connection, stack.voices[name]) for name in ("low", "high")]
        contexts = [make_context(connection, stack.voices[name]) for name in ("low", "high")]
        for start in range(0, len(TEXT), 7):
            for context in contexts:
                await context.push(TEXT[start : start + 7])
        for context in contexts:
            await context.no_more_inputs()
        assert [join(events) for events in await asyncio.gather(*map(hear, contexts))] == alone


async def test_twenty_interruptions_leave_nothing_behind(stack: Stack) -> None:
    """Each in the middle of a sentence; what is said next is heard as if nothing had been."""
    async with talk(stack) as connection:
        alone = await speak(connection, stack.alias)
        for _ in range(20):
            context = make_context(connection, stack.alias)
            await context.push(LONG_TEXT)
            async for event in context.receive():
                assert event.type == "chunk"
                break
            await context.cancel()
        context = make_context(connection, stack.alias)
        await context.push(TEXT)
        await context.no_more_inputs()
        assert join(await hear(context)) == alone


def test_a_flush_parts_the_audio(client: Cartesia, stack: Stack) -> None:
    """As in the SDK's own example: each transcript's audio has the number of its flush."""
    with client.tts.websocket_connect() as connection:
        context = make_context(connection, stack.alias)
        context.push("Stay hungry, ")
        context.push("", flush=True)
        context.push("stay foolish.")
        context.no_more_inputs()
        events = list(context.receive())
    parts: dict[int, bytes] = {}
    for event in events:
        if event.type == "chunk":
            parts[event.flush_id] = parts.get(event.flush_id, b"") + event.audio
    assert [event.flush_id for event in events if event.type == "flush_done"] == [1]
    assert sorted(parts) == [1, 2]
    for part in parts.values():
        check_speech(read_pcm(part), RATE, seconds=(0.3, 4))


async def test_the_speed_is_heard(stack: Stack) -> None:
    """In the audio and in the times."""
    async with talk(stack) as connection:
        plain = await speak(connection, stack.alias)
        context = make_context(connection, stack.alias, add_timestamps=True, generation_config={"speed": 1.5})
        await context.push(TEXT)
        await context.no_more_inputs()
        events = await hear(context)
    assert abs(len(plain) / len(join(events)) - 1.5) < 0.01
    check_words(events)


async def test_what_cannot_be_spoken_is_an_error_of_its_context(stack: Stack) -> None:
    """With a code, a status and a title; the connection goes on."""
    wav = {"container": "wav", "encoding": "pcm_s16le", "sample_rate": RATE}
    cases: list[tuple[str, dict[str, Any], int, str]] = [
        ("", {}, 400, "transcript_empty"),
        ("😀🎉", {}, 400, "transcript_empty"),
        ("word " * 4000, {}, 400, "transcript_too_long"),
        (TEXT, {"voice": UNKNOWN_VOICE}, 404, "voice_not_found"),
        (TEXT, {"voice": stack.foreign_voice}, 404, "voice_not_found"),
        (TEXT, {"voice": {"mode": "embedding", "embedding": [0.1] * 192}}, 400, "invalid_request"),
        (TEXT, {"language": "de"}, 400, "invalid_request"),
        (TEXT, {"output_format": wav}, 400, "invalid_request"),
    ]
    async with talk(stack) as connection:
        for text, changed, status, code in cases:
            context = make_context(connection, stack.alias, **changed)
            await context.push(text, continue_=False)
            [error] = await hear(context)
            assert (error.type, error.status_code, error.error_code) == ("error", status, code)
            assert error.error == f"{error.title}: {error.message}"
            assert error.request_id
        check_speech(read_pcm(await speak(connection, stack.alias)), RATE, seconds=SECONDS)


def test_what_cannot_be_spoken_is_an_exception_over_http(client: Cartesia, stack: Stack) -> None:
    """Of the class that the SDK has for its status."""
    cases: list[tuple[dict[str, Any], type[cartesia.APIStatusError], str]] = [
        ({"text": ""}, cartesia.BadRequestError, "transcript_empty"),
        ({"text": "😀"}, cartesia.BadRequestError, "transcript_empty"),
        ({"text": "word " * 4000}, cartesia.BadRequestError, "transcript_too_long"),
        ({"voice": UNKNOWN_VOICE}, cartesia.NotFoundError, "voice_not_found"),
        ({"voice": stack.foreign_voice}, cartesia.NotFoundError, "voice_not_found"),
        ({"output_format": {"container": "ogg", "sample_rate": RATE}}, cartesia.BadRequestError, "invalid_request"),
    ]
    for changed, kind, code in cases:
        check_error(kind, code, lambda changed=changed: generate(client, **{"voice": stack.alias, **changed}))


def check_error(kind: type[cartesia.APIStatusError], code: str, act: Any) -> str:
    """The message of the exception that it ends in."""
    with pytest.raises(kind) as caught:
        act()
    body = caught.value.body
    assert isinstance(body, dict)
    assert set(body) == {"error_code", "title", "message", "request_id"}
    assert body["error_code"] == code
    return str(body["message"])


async def test_a_wrong_key_opens_nothing(stack: Stack) -> None:
    """Neither HTTP nor the WebSocket."""
    with Cartesia(api_key=stack.wrong_key, **address(stack)) as client:
        check_error(cartesia.AuthenticationError, "unauthorized", lambda: generate(client, stack.alias))
        check_error(cartesia.AuthenticationError, "unauthorized", lambda: list(client.voices.list()))
    with pytest.raises(Exception, match="401"):
        async with talk(stack, api_key=stack.wrong_key):
            pass


async def test_after_a_drop_a_new_connection_speaks(stack: Stack) -> None:
    """The old one's contexts are gone with it."""
    async with talk(stack) as connection:
        await make_context(connection, stack.alias).push(LONG_TEXT)
        connection._connection.transport.abort()
    async with talk(stack) as connection:
        check_speech(read_pcm(await speak(connection, stack.alias)), RATE, seconds=SECONDS)


async def test_over_tls_one_base_url_is_enough(stack: Stack) -> None:
    """The SDK makes `wss` of it by itself."""
    given = {"websocket_base_url": None, "base_url": f"{stack.https}/cartesia"}
    async with talk(stack, **given) as connection:
        check_speech(read_pcm(await speak(connection, stack.alias)), RATE, seconds=SECONDS)


def test_voices_are_listed_and_read(client: Cartesia, stack: Stack) -> None:
    """Page by page to the end, and only the tenant's own."""
    voices = {voice.id: voice for voice in client.voices.list(limit=1)}
    assert set(voices) >= set(stack.voices.values())
    assert stack.foreign_voice not in voices
    low = client.voices.get(stack.alias)
    assert (low.id, low.name, low.language, low.is_owner) == (stack.voices["low"], "low", "en", True)
    assert voices[low.id] == low
    assert low.created_at.tzinfo is not None
    check_error(cartesia.NotFoundError, "voice_not_found", lambda: client.voices.get(stack.foreign_voice))
    check_error(cartesia.NotFoundError, "voice_not_found", lambda: client.voices.delete(stack.foreign_voice))


def test_a_clip_with_a_consent_becomes_a_voice(client: Cartesia, stack: Stack) -> None:
    """It speaks, is renamed and deleted; without a consent the error says how to come by one."""
    clip = Path(stack.recording)
    told = check_error(
        cartesia.BadRequestError, "invalid_request", lambda: client.voices.clone(clip=clip, name="Ada", language="en")
    )
    assert "consent" in told
    ways: list[dict[str, Any]] = [
        {"extra_body": {"consent": stack.consent}},
        {"extra_headers": {"X-Timbrelay-Consent": stack.consent}},
    ]
    for way in ways:
        made = client.voices.clone(clip=clip, name="Ada", language="en", description="Bright.", **way)
        assert (made.name, made.access, made.language) == ("Ada", "private", "en")
        check_speech(read_pcm(generate(client, made.id)), RATE, seconds=SECONDS)
        assert client.voices.update(made.id, name="Berta").name == "Berta"
        client.voices.delete(made.id)
        check_error(cartesia.NotFoundError, "voice_not_found", lambda made=made: generate(client, made.id))


async def test_an_access_token_speaks(client: Cartesia, stack: Stack) -> None:
    """Over HTTP and the WebSocket, and it makes no others."""
    token = client.access_token.create(grants={"tts": True}, expires_in=60).token
    with Cartesia(token=token, **address(stack)) as browser:
        check_speech(read_pcm(generate(browser, stack.alias)), RATE, seconds=SECONDS)
        check_error(cartesia.PermissionDeniedError, "forbidden", browser.access_token.create)
        check_error(cartesia.PermissionDeniedError, "forbidden", lambda: browser.voices.delete(stack.alias))
    async with talk(stack, api_key=None, token=token) as connection:
        check_speech(read_pcm(await speak(connection, stack.alias)), RATE, seconds=SECONDS)


def test_the_status_is_known_without_a_key(stack: Stack) -> None:
    """The SDK's `get_status`."""
    with Cartesia(api_key="none", **address(stack)) as client:
        assert client.get_status().ok


def test_audio_is_the_base64_of_whole_samples(client: Cartesia, stack: Stack) -> None:
    """In each single frame."""
    with client.tts.websocket_connect() as connection:
        context = make_context(connection, stack.alias, output_format={**RAW, "encoding": "pcm_f32le"})
        context.push(TEXT)
        context.no_more_inputs()
        chunks = [event.data for event in context.receive() if event.type == "chunk"]
    assert all(len(base64.b64decode(data, validate=True)) % 4 == 0 for data in chunks)
