"""The ElevenLabs SDK: speech over HTTP, with times, in real time over wss; voices listed, cloned, renamed, deleted."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from _frame import LONG_TEXT, TEXT, UNKNOWN_VOICE, Stack, check_speech, read_pcm
from elevenlabs import VoiceSettings
from elevenlabs.client import AsyncElevenLabs, ElevenLabs
from elevenlabs.core.api_error import ApiError
from elevenlabs.errors import UnprocessableEntityError

RATE = 24_000
PCM = "pcm_24000"
MODEL = "eleven_flash_v2_5"


@pytest.fixture
def client(stack: Stack) -> ElevenLabs:
    """The SDK, told another base URL."""
    return make_client(stack, stack.key)


def make_client(stack: Stack, key: str, *, secure: bool = False) -> ElevenLabs:
    """In plain, or over TLS as the part for real time wants it."""
    return ElevenLabs(api_key=key, base_url=f"{stack.https if secure else stack.http}/elevenlabs", timeout=30)


def speak(client: ElevenLabs, voice: str, text: str = TEXT, **more: Any) -> bytes:
    """A text as samples."""
    more.setdefault("output_format", PCM)
    return b"".join(client.text_to_speech.convert(voice, text=text, model_id=MODEL, **more))


def speak_live(client: ElevenLabs, voice: str, text: Iterable[str], **more: Any) -> bytes:
    """The same while it is being written."""
    more.setdefault("output_format", PCM)
    return b"".join(client.text_to_speech.convert_realtime(voice, text=iter(text), **more))


def refusal(speaking: Callable[[], object], kind: type[Exception] = ApiError) -> Any:
    """The exception that a call ends in."""
    with pytest.raises(kind) as refused:
        speaking()
    return refused.value


def test_a_text_is_spoken(client: ElevenLabs, stack: Stack) -> None:
    """Whole and streamed the same, by id and by alias; another voice is another sound."""
    low = speak(client, stack.voices["low"])
    check_speech(read_pcm(low), RATE, seconds=(1.5, 8))
    streamed = client.text_to_speech.stream(stack.voices["low"], text=TEXT, model_id=MODEL, output_format=PCM)
    assert b"".join(streamed) == low
    assert speak(client, stack.alias) == low
    assert speak(client, stack.voices["high"]) != low


def test_without_a_format_it_is_mp3(client: ElevenLabs, stack: Stack) -> None:
    """As their default is: 128 kbit/s, a frame every 26 ms."""
    content = b"".join(client.text_to_speech.convert(stack.alias, text=TEXT))
    assert content[:2] == b"\xff\xfb" or content[:3] == b"ID3"
    seconds = len(speak(client, stack.alias)) / 2 / RATE
    assert len(content) * 8 / 128_000 == pytest.approx(seconds, abs=0.15)


def test_settings_are_taken_and_speed_is_honoured(client: ElevenLabs, stack: Stack) -> None:
    """With all that a request may hold beside."""
    plain = speak(client, stack.alias)
    settings = VoiceSettings(stability=0.4, similarity_boost=0.9, style=0.2, use_speaker_boost=True, speed=1.2)
    more = {"seed": 7, "previous_text": "Hello.", "apply_text_normalization": "auto", "language_code": "en"}
    faster = speak(client, stack.alias, voice_settings=settings, optimize_streaming_latency=2, **more)
    assert len(faster) / len(plain) == pytest.approx(1 / 1.2, rel=0.02)


def test_times_come_with_the_text(client: ElevenLabs, stack: Stack) -> None:
    """Every character once, in order, to the end of the audio; in one piece and in many."""
    whole = client.text_to_speech.convert_with_timestamps(stack.alias, text=TEXT, output_format=PCM)
    parts = list(client.text_to_speech.stream_with_timestamps(stack.alias, text=TEXT, output_format=PCM))
    pcm = base64.b64decode(whole.audio_base_64)
    assert pcm == b"".join(base64.b64decode(part.audio_base_64) for part in parts) == speak(client, stack.alias)
    timed = [part.alignment for part in parts if part.alignment]
    for alignments in ([whole.alignment], timed):
        characters = "".join(char for found in alignments for char in found.characters)
        ends = [end for found in alignments for end in found.character_end_times_seconds]
        assert characters == TEXT
        assert ends == sorted(ends)
        assert ends[-1] == pytest.approx(len(pcm) / 2 / RATE, abs=0.001)


def test_a_text_is_spoken_while_it_is_written(stack: Stack) -> None:
    """Over wss, which is all that this part of the SDK knows; the client says neither model nor settings."""
    client = make_client(stack, stack.key, secure=True)
    pieces = ("Good morning. ", "This is a short ", "test of a ", "cloned voice.")
    live = speak_live(client, stack.voices["low"], pieces)
    check_speech(read_pcm(live), RATE, seconds=(1.5, 8))
    settings = VoiceSettings(stability=0.4, similarity_boost=0.9, speed=1.2)
    faster = speak_live(client, stack.alias, pieces, model_id=MODEL, voice_settings=settings)
    assert len(faster) / len(live) == pytest.approx(1 / 1.2, rel=0.03)
    assert speak_live(client, stack.alias, pieces, model_id=None, voice_settings=None) == live
    check_speech(read_pcm(speak_live(client, stack.alias, ["Thank you for calling."])), RATE, seconds=(0.3, 5))


def test_two_texts_at_once_do_not_mix(stack: Stack) -> None:
    """Each the same as alone."""
    client = make_client(stack, stack.key, secure=True)
    cases = [(stack.voices[name], [f"This is the {name} voice. "] * 2) for name in ("low", "high")]
    alone = [speak_live(client, *case) for case in cases]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda case: speak_live(client, *case), cases * 2)) == alone * 2


def test_twenty_interruptions_leave_the_next_text_alone(stack: Stack) -> None:
    """A listener that goes away after the first sound, then one that stays."""
    client = make_client(stack, stack.key, secure=True)
    alone = speak_live(client, stack.alias, [TEXT])
    for number in range(20):
        live = client.text_to_speech.convert_realtime(stack.alias, text=iter([LONG_TEXT]), output_format=PCM)
        whole = client.text_to_speech.stream(stack.alias, text=LONG_TEXT, output_format=PCM)
        stream: Iterator[bytes] = live if number % 2 else whole
        assert next(stream)
        stream.close()  # type: ignore[attr-defined]
    assert speak_live(client, stack.alias, [TEXT]) == alone


@pytest.mark.parametrize(
    ("changed", "text", "status", "code"),
    [
        ({"key": "wrong"}, TEXT, 401, "invalid_api_key"),
        ({"voice": UNKNOWN_VOICE}, TEXT, 404, "voice_not_found"),
        ({"voice": "foreign"}, TEXT, 404, "voice_not_found"),
        ({}, "", 400, "input_text_empty"),
        ({}, "😀", 400, "input_text_empty"),
        ({}, "x" * 40_001, 400, "max_character_limit_exceeded"),
    ],
)
def test_what_goes_wrong_over_http(stack: Stack, changed: dict[str, str], text: str, status: int, code: str) -> None:
    """An ApiError with the status and the detail that its users compare, in all four ways to speak."""
    client = make_client(stack, stack.wrong_key if changed.get("key") else stack.key)
    voice = {"foreign": stack.foreign_voice}.get(changed.get("voice", ""), changed.get("voice", stack.alias))
    ways: list[Callable[..., Any]] = [
        client.text_to_speech.convert,
        client.text_to_speech.stream,
        client.text_to_speech.stream_with_timestamps,
        lambda *args, **more: [client.text_to_speech.convert_with_timestamps(*args, **more)],
    ]
    for way in ways:
        error = refusal(lambda way=way: list(way(voice, text=text, output_format=PCM)))
        assert (error.status_code, error.body["detail"]["status"]) == (status, code)
        assert error.body["detail"]["message"]


def test_a_field_that_cannot_be_read_is_an_unprocessable_entity(client: ElevenLabs, stack: Stack) -> None:
    """An exception of its own in the SDK, with the place."""
    error = refusal(lambda: speak(client, stack.alias, output_format="mpeg"), UnprocessableEntityError)
    assert error.body["detail"][0]["loc"] == ["query", "output_format"]


@pytest.mark.parametrize(
    ("changed", "text", "code"),
    [
        ({"key": "wrong"}, [TEXT], "key"),
        ({"voice": UNKNOWN_VOICE}, [TEXT], "voice"),
        ({"voice": "foreign"}, [TEXT], "voice"),
        ({}, [], "nothing that can be spoken"),
        ({}, ["😀"], "nothing that can be spoken"),
        ({}, ["x" * 10_001], "10,000 characters"),
        ({"format": "mpeg"}, [TEXT], "format"),
    ],
)
def test_what_goes_wrong_in_real_time(stack: Stack, changed: dict[str, str], text: list[str], code: str) -> None:
    """An ApiError with the reason, from the last message or from the close."""
    client = make_client(stack, stack.wrong_key if changed.get("key") else stack.key, secure=True)
    voice = {"foreign": stack.foreign_voice}.get(changed.get("voice", ""), changed.get("voice", stack.alias))
    error = refusal(lambda: speak_live(client, voice, text, output_format=changed.get("format", PCM)))
    assert error.status_code == 1008
    assert code in (error.body["message"] if isinstance(error.body, dict) else error.body)


def test_voices_are_listed_and_found(client: ElevenLabs, stack: Stack) -> None:
    """The tenant's own and no others, in both lists."""
    wanted = set(stack.voices.values())
    for listed in (client.voices.get_all().voices, client.voices.search(page_size=100).voices):
        assert {voice.voice_id for voice in listed} >= wanted
        assert stack.foreign_voice not in {voice.voice_id for voice in listed}
    first = client.voices.search(page_size=1)
    second = client.voices.search(page_size=1, next_page_token=first.next_page_token)
    assert first.has_more
    assert first.voices[0].voice_id != second.voices[0].voice_id
    found = client.voices.get(stack.voices["low"])
    assert (found.name, found.category) == ("low", "cloned")
    assert client.voices.settings.get_default().speed == 1.0
    assert client.voices.settings.get(stack.alias).stability == 0.5
    assert client.models.list()[0].can_do_text_to_speech
    for voice in (stack.foreign_voice, UNKNOWN_VOICE):
        assert refusal(lambda voice=voice: client.voices.get(voice)).status_code == 404
    assert refusal(make_client(stack, stack.wrong_key).voices.get_all).status_code == 401


def test_a_voice_is_cloned_by_a_consent(client: ElevenLabs, stack: Stack) -> None:
    """Which is a label; the voice speaks at once, gets another name, and is deleted."""
    recording = Path(stack.recording)
    with recording.open("rb") as file:
        made = client.voices.ivc.create(name="reader", files=[file], labels={"consent": stack.consent})
    assert not made.requires_verification
    check_speech(read_pcm(speak(client, made.voice_id)), RATE, seconds=(1.5, 8))
    assert client.voices.update(made.voice_id, name="evening reader").status == "ok"
    assert client.voices.get(made.voice_id).name == "evening reader"
    assert client.voices.delete(made.voice_id).status == "ok"
    assert refusal(lambda: speak(client, made.voice_id)).status_code == 404
    with recording.open("rb") as file:
        error = refusal(lambda: client.voices.ivc.create(name="reader", files=[file]), UnprocessableEntityError)
    assert "consent" in json.dumps(error.body)


async def test_the_asynchronous_client_does_the_same(stack: Stack, client: ElevenLabs) -> None:
    """Over HTTP, which is all that it knows."""
    other = AsyncElevenLabs(api_key=stack.key, base_url=f"{stack.http}/elevenlabs", timeout=30)
    spoken = [piece async for piece in other.text_to_speech.stream(stack.alias, text=TEXT, output_format=PCM)]
    assert b"".join(spoken) == speak(client, stack.alias)
    with pytest.raises(ApiError):
        await other.voices.get(UNKNOWN_VOICE)
