"""The OpenAI SDK: speech whole, streamed and as events, in every format, refused, interrupted; voices and consents."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import av
import httpx2
import numpy as np
import openai
import pytest
from _frame import LONG_TEXT, TEXT, UNKNOWN_VOICE, Stack, check_speech, read_pcm
from openai import AsyncOpenAI

RATE = 24_000
MODEL = "gpt-4o-mini-tts"
FORMATS = ("mp3", "opus", "aac", "flac", "wav", "pcm")


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[AsyncOpenAI]:
    """The SDK, told another base URL."""
    async with make_client(stack, stack.key) as made:
        yield made


def make_client(stack: Stack, key: str) -> AsyncOpenAI:
    """A client that says at once what goes wrong."""
    return AsyncOpenAI(base_url=f"{stack.http}/openai/v1", api_key=key, max_retries=0, timeout=30)


async def speak(client: AsyncOpenAI, voice: Any, text: str = TEXT, **more: Any) -> np.ndarray:
    """A text as samples."""
    spoken = await client.audio.speech.create(model=MODEL, voice=voice, input=text, response_format="pcm", **more)
    return read_pcm(spoken.content)


def decode(content: bytes) -> tuple[np.ndarray, int]:
    """A file's samples, mono, and their rate."""
    with av.open(io.BytesIO(content)) as container:
        rate = container.streams.audio[0].rate
        mono = av.AudioResampler("flt", "mono", rate)
        frames = [made for frame in container.decode(audio=0) for made in mono.resample(frame)]
    return np.concatenate([frame.to_ndarray().reshape(-1) for frame in frames]), rate


async def refusal(speaking: Any, kind: type[openai.APIStatusError]) -> openai.APIStatusError:
    """The exception that an awaitable ends in, with its four members."""
    with pytest.raises(kind) as refused:
        await speaking
    body = refused.value.body
    assert isinstance(body, dict)
    assert set(body) == {"message", "type", "param", "code"}
    assert refused.value.request_id
    return refused.value


async def test_a_text_is_spoken_by_id_object_and_alias(client: AsyncOpenAI, stack: Stack) -> None:
    """All three name the same voice, and two voices do not sound alike."""
    low = await speak(client, stack.voices["low"])
    check_speech(low, RATE, seconds=(1.5, 8))
    assert np.array_equal(low, await speak(client, {"id": stack.voices["low"]}))
    assert np.array_equal(low, await speak(client, stack.alias))
    high = await speak(client, stack.voices["high"])
    assert len(high) != len(low) or not np.allclose(high, low, atol=0.01)


async def test_every_format_decodes_to_the_same_speech(client: AsyncOpenAI, stack: Stack) -> None:
    """As long as the samples, within what a codec adds; mp3 is what comes unless something else is asked for."""
    duration = len(await speak(client, stack.alias)) / RATE
    for name in (*FORMATS[:-1], openai.omit):
        spoken = await client.audio.speech.create(model="tts-1", voice=stack.alias, input=TEXT, response_format=name)
        samples, rate = decode(spoken.content)
        check_speech(samples, rate, seconds=(duration - 0.15, duration + 0.15))
    assert spoken.response.headers["content-type"] == "audio/mpeg"


async def test_speech_is_streamed_into_a_file(client: AsyncOpenAI, stack: Stack, tmp_path: Path) -> None:
    """`with_streaming_response`, as the SDK's own examples have it; its pieces are the same as the whole."""
    whole = await speak(client, stack.alias)
    asked = {"model": MODEL, "voice": stack.alias, "input": TEXT}
    file = tmp_path / "speech.mp3"
    async with client.audio.speech.with_streaming_response.create(**asked) as answer:
        await answer.stream_to_file(file)
    assert len(decode(file.read_bytes())[0]) > RATE
    pieces: list[bytes] = []
    async with client.audio.speech.with_streaming_response.create(**asked, response_format="pcm") as answer:
        async for piece in answer.iter_bytes():
            pieces.append(piece)
    assert len(pieces) > 1
    assert np.array_equal(read_pcm(b"".join(pieces)), whole)


async def test_events_hold_the_same_speech_and_what_it_cost(client: AsyncOpenAI, stack: Stack) -> None:
    """`speech.audio.delta` with Base64, then `speech.audio.done` with its usage."""
    events: list[dict[str, Any]] = []
    async with client.audio.speech.with_streaming_response.create(
        model=MODEL, voice=stack.alias, input=TEXT, response_format="pcm", stream_format="sse"
    ) as answer:
        async for line in answer.iter_lines():
            if line.startswith("data: "):
                events.append(json.loads(line.removeprefix("data: ")))
    *deltas, done = events
    heard = b"".join(base64.b64decode(event["audio"]) for event in deltas)
    assert np.array_equal(read_pcm(heard), await speak(client, stack.alias))
    assert done["type"] == "speech.audio.done"
    usage = done["usage"]
    assert usage["input_tokens"] == len(TEXT)
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


@pytest.mark.parametrize("speed", [0.5, 2.0])
async def test_speed_changes_how_long_it_takes(speed: float, client: AsyncOpenAI, stack: Stack) -> None:
    """And it is still speech."""
    plain, changed = await speak(client, stack.alias), await speak(client, stack.alias, speed=speed)
    assert len(changed) / len(plain) == pytest.approx(1 / speed, rel=0.02)
    check_speech(changed, RATE)


async def test_a_wrong_key_is_an_authentication_error(stack: Stack) -> None:
    """For speech, for models, for voices."""
    async with make_client(stack, stack.wrong_key) as stranger:
        assert (await refusal(speak(stranger, stack.alias), openai.AuthenticationError)).code == "invalid_api_key"
        await refusal(stranger.models.retrieve(MODEL), openai.AuthenticationError)
        await refusal(stranger.audio.voices.delete(stack.voices["low"]), openai.AuthenticationError)


async def test_unknown_and_foreign_voices_are_not_found(client: AsyncOpenAI, stack: Stack) -> None:
    """In the same words; an unknown alias is told how it is set."""
    messages = [
        (await refusal(speak(client, voice), openai.NotFoundError)).message.replace(voice, "X")
        for voice in (UNKNOWN_VOICE, stack.foreign_voice)
    ]
    assert messages[0] == messages[1]
    unset = await refusal(speak(client, "shimmer"), openai.NotFoundError)
    assert unset.param == "voice"
    assert "PUT /v1/aliases/shimmer" in unset.message
    async with make_client(stack, stack.other_key) as other:
        await refusal(speak(other, stack.alias), openai.NotFoundError)


@pytest.mark.parametrize("text", ["", "   ", "😀 😀", "x" * 4097, "\n"])
async def test_what_cannot_be_spoken_is_a_bad_request(text: str, client: AsyncOpenAI, stack: Stack) -> None:
    """Empty, blank, without a sound, over-long: `input` is at fault."""
    assert (await refusal(speak(client, stack.alias, text), openai.BadRequestError)).param == "input"


async def test_half_a_surrogate_pair_does_no_harm(client: AsyncOpenAI, stack: Stack) -> None:
    """The SDK cannot even send it as it is; sent as JSON's escape it is a bad request."""
    with pytest.raises((UnicodeEncodeError, openai.OpenAIError)):
        await speak(client, stack.alias, "Hello \ud83d there.")
    sent = client.post(
        "/audio/speech",
        cast_to=httpx2.Response,
        content=b'{"model": "tts-1", "voice": "alloy", "input": "Hello \\ud83d there."}',
        options={"headers": {"Content-Type": "application/json"}},
    )
    assert (await refusal(sent, openai.BadRequestError)).param == "input"


async def test_a_bad_format_or_speed_is_named(client: AsyncOpenAI, stack: Stack) -> None:
    """FM7: 400 and the field, never audio of another kind."""
    asked = {"model": MODEL, "voice": stack.alias, "input": TEXT}
    create = client.audio.speech.create
    for more, param in (
        ({"response_format": "mpeg"}, "response_format"),
        ({"speed": 4.5}, "speed"),
        ({"speed": "fast"}, "speed"),
        ({"stream_format": "chunks"}, "stream_format"),
    ):
        assert (await refusal(create(**asked, **more), openai.BadRequestError)).param == param  # type: ignore[arg-type]


async def test_ten_at_once_hear_their_own_words(client: AsyncOpenAI, stack: Stack) -> None:
    """To the sample what each text sounds like alone."""
    texts = [f"This is number {number}, and it is talking." for number in ("one", "two", "three", "four", "five")]
    alone = [await speak(client, stack.alias, text) for text in texts]
    together = await asyncio.gather(*(speak(client, stack.alias, text) for text in texts * 2))
    for heard, wanted in zip(together, alone * 2, strict=True):
        assert np.array_equal(heard, wanted)


async def test_a_speech_can_be_left_in_the_middle(client: AsyncOpenAI, stack: Stack) -> None:
    """Twenty times in a row, and there is still room for the next one."""
    for _ in range(20):
        async with client.audio.speech.with_streaming_response.create(
            model=MODEL, voice=stack.alias, input=LONG_TEXT, response_format="pcm"
        ) as answer:
            async for _piece in answer.iter_bytes(4096):
                break
    check_speech(await speak(client, stack.alias), RATE)


async def test_models_and_voices_are_listed(client: AsyncOpenAI, stack: Stack) -> None:
    """The tenant's own voices and nobody else's."""
    assert MODEL in [model.id async for model in client.models.list()]
    assert (await client.models.retrieve(MODEL)).object == "model"
    listed = json.loads((await client.get("/audio/voices", cast_to=httpx2.Response)).content)
    ids = {voice["id"] for voice in listed["data"]}
    assert set(stack.voices.values()) <= ids
    assert stack.foreign_voice not in ids


async def test_a_voice_is_made_of_a_consent_and_a_sample(client: AsyncOpenAI, stack: Stack) -> None:
    """It speaks at once, and is deleted with its consent; another tenant finds neither."""
    recording = Path(stack.recording)
    consent = await client.audio.voice_consents.create(name="A. Person", language="en-US", recording=recording)
    assert (consent.object, consent.name, consent.language) == ("audio.voice_consent", "A. Person", "en-US")
    voice = await client.audio.voices.create(name="Mine", audio_sample=recording, consent=consent.id)
    assert (voice.object, voice.name, voice.type) == ("audio.voice", "Mine", "audio_sample")
    check_speech(await speak(client, {"id": voice.id}), RATE)
    async with make_client(stack, stack.other_key) as other:
        await refusal(other.audio.voice_consents.retrieve(consent.id), openai.NotFoundError)
        await refusal(other.audio.voices.delete(voice.id), openai.NotFoundError)
    assert consent.id in [item.id async for item in client.audio.voice_consents.list(limit=1)]
    assert (await client.audio.voice_consents.retrieve(consent.id)).name == "A. Person"
    assert (await client.audio.voices.delete(voice.id)).deleted
    await refusal(speak(client, voice.id), openai.NotFoundError)
    assert (await client.audio.voice_consents.delete(consent.id)).deleted
    await refusal(client.audio.voice_consents.retrieve(consent.id), openai.NotFoundError)


async def test_a_bad_sample_is_a_bad_request(client: AsyncOpenAI, stack: Stack) -> None:
    """With the reason, and no voice is left of it."""
    create = client.audio.voices.create
    noise = create(name="Noise", audio_sample=("a.wav", b"no sound at all"), consent=stack.consent)
    assert (await refusal(noise, openai.BadRequestError)).param == "audio_sample"
    unknown = create(name="Mine", audio_sample=Path(stack.recording), consent=UNKNOWN_VOICE)
    assert (await refusal(unknown, openai.NotFoundError)).param == "consent"
    listed = json.loads((await client.get("/audio/voices", cast_to=httpx2.Response)).content)
    assert "Noise" not in {voice["name"] for voice in listed["data"]}


async def test_the_same_over_https(stack: Stack) -> None:
    """With the test's certificate authority trusted as any other."""
    base = f"{stack.https}/openai/v1"
    async with AsyncOpenAI(base_url=base, api_key=stack.key, max_retries=0) as client:
        check_speech(await speak(client, stack.alias), RATE)
