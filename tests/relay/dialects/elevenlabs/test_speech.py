"""Speech over HTTP in ElevenLabs' dialect from a running relay and worker."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from typing import Any
from uuid import uuid4

import av
import httpx2
import pytest

from tests.conftest import MakeTenant, MakeVoice, RunningStack, wait_until
from tests.relay.dialects.elevenlabs.conftest import Http, Speaking, embed
from tests.relay.dialects.elevenlabs.sockets import contexts
from tests.system.conftest import LONG_SENTENCE

ONE_STACK = True
TEXT = "Good morning. This is a short test."
LONG = f"{LONG_SENTENCE}. " * 20
ENDINGS = ("", "/stream", "/with-timestamps", "/stream/with-timestamps")
FORMATS = {
    "mp3_44100_128": "audio/mpeg",
    "mp3_22050_32": "audio/mpeg",
    "opus_48000_64": "audio/ogg",
    "pcm_16000": "audio/pcm",
    "ulaw_8000": "audio/basic",
    "alaw_8000": "audio/PCMA",
    "wav_24000": "audio/wav",
}


async def post(http: Http, voice: str, ending: str = "", **changed: Any) -> httpx2.Response:
    query = changed.pop("query", {"output_format": "pcm_24000"})
    body = {"text": TEXT, "model_id": "eleven_flash_v2_5", **changed}
    return await http.post(f"/v1/text-to-speech/{voice}{ending}", json=body, params=query)


def join(times: list[dict[str, list[Any]]], key: str) -> list[Any]:
    return [value for part in times for value in part[key]]


def check_times(times: list[dict[str, list[Any]]], seconds: float, text: str = TEXT) -> None:
    """The text, character by character, in order and to the end of the audio."""
    starts, ends = (join(times, f"character_{edge}_times_seconds") for edge in ("start", "end"))
    assert "".join(join(times, "characters")) == text
    assert len(starts) == len(ends) == len(text)
    edges = [edge for pair in zip(starts, ends, strict=True) for edge in pair]
    assert edges == sorted(edges)
    assert ends[-1] == pytest.approx(seconds, abs=0.001)


@pytest.mark.parametrize("ending", ["", "/stream"])
@pytest.mark.parametrize(("format", "media_type"), FORMATS.items())
async def test_a_format_is_honoured(http: Http, acme: Speaking, ending: str, format: str, media_type: str) -> None:
    """With its own Content-Type, which LiveKit wants to begin with `audio/` (FM4), and decodable (FM3)."""
    plain = await post(http, acme.voice, ending)
    seconds = len(plain.content) / 48_000
    answer = await post(http, acme.voice, ending, query={"output_format": format})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].partition(";")[0] == media_type
    rate = {"pcm_16000": 32_000, "ulaw_8000": 8000, "alaw_8000": 8000}.get(format)
    if rate is not None:
        assert len(answer.content) == pytest.approx(rate * seconds, abs=2)
        return
    with av.open(io.BytesIO(answer.content), "r") as container:
        frames = list(container.decode(audio=0))
    assert sum(f.samples for f in frames) / frames[0].sample_rate == pytest.approx(seconds, abs=0.15)


async def test_all_four_ways_give_the_same_audio(http: Http, acme: Speaking) -> None:
    """And the two with times give the same times, which end where the audio ends."""
    plain, streamed, timed, lined = [await post(http, acme.voice, ending) for ending in ENDINGS]
    lines = [json.loads(line) for line in lined.text.splitlines()]
    whole = timed.json()
    assert base64.b64decode(whole["audio_base64"]) == plain.content == streamed.content
    assert b"".join(base64.b64decode(line["audio_base64"]) for line in lines) == plain.content
    times = [line["alignment"] for line in lines if line["alignment"]]
    seconds = len(plain.content) / 48_000
    assert seconds > 1
    check_times(times, seconds)
    check_times([whole["alignment"]], seconds)
    assert whole["normalized_alignment"] == whole["alignment"]
    assert len(lines) > 10


async def test_speed_is_honoured_and_the_other_settings_passed_over(http: Http, acme: Speaking) -> None:
    """Times too."""
    plain = await post(http, acme.voice)
    settings = {"speed": 1.2, "stability": 0.3, "similarity_boost": 1.0, "style": 0.4, "use_speaker_boost": False}
    faster = await post(http, acme.voice, "/with-timestamps", voice_settings=settings)
    pcm = base64.b64decode(faster.json()["audio_base64"])
    assert len(pcm) / len(plain.content) == pytest.approx(1 / 1.2, rel=0.02)
    check_times([faster.json()["alignment"]], len(pcm) / 48_000)
    assert (await post(http, acme.voice, voice_settings=None)).content == plain.content


async def test_tags_are_not_read_aloud(http: Http, acme: Speaking) -> None:
    """A break has no effect over HTTP, but that it may part two sentences."""
    plain = await post(http, acme.voice, text="Good morning. Good evening.")
    tagged = await post(http, acme.voice, text='<speak>Good morning. <break time="1.5s"/> Good evening.</speak>')
    assert len(tagged.content) == pytest.approx(len(plain.content), abs=0.5 * 48_000)


async def test_what_is_not_known_is_passed_over(http: Http, acme: Speaking) -> None:
    """In the body and in the query."""
    query = {"output_format": "pcm_24000", "optimize_streaming_latency": "3", "enable_logging": "false", "x": "y"}
    more: dict[str, Any] = {
        "seed": 5,
        "previous_text": "Hello.",
        "apply_text_normalization": "off",
        "language_code": "en",
        "x": [1],
    }
    assert (await post(http, acme.voice, query=query, **more)).status_code == 200


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(
    ("changed", "status", "code"),
    [
        ({"text": ""}, 400, "input_text_empty"),
        ({"text": " \n"}, 400, "input_text_empty"),
        ({"text": "😀😀"}, 400, "input_text_empty"),
        ({"text": "…"}, 400, "input_text_empty"),
        ({"text": "x" * 40_001}, 400, "max_character_limit_exceeded"),
        ({"text": "x" * 1_000_000}, 400, "max_character_limit_exceeded"),
    ],
)
async def test_a_text_that_cannot_be_spoken_is_an_error(
    http: Http, acme: Speaking, ending: str, changed: dict[str, Any], status: int, code: str
) -> None:
    """Never a 200 without a sound."""
    answer = await post(http, acme.voice, ending, **changed)
    assert answer.status_code == status, answer.text
    assert answer.json()["detail"]["status"] == code


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"text": None}, ["body", "text"]),
        ({"text": 5}, ["body", "text"]),
        ({"text": "x", "voice_settings": {"speed": 9}}, ["body", "voice_settings", "speed"]),
        ({"text": "Guten Morgen.", "language_code": "de"}, ["body", "language_code"]),
        ({"query": {"output_format": "mpeg"}}, ["query", "output_format"]),
    ],
)
async def test_a_field_that_cannot_be_read_is_named(
    http: Http, acme: Speaking, changed: dict[str, Any], where: list[str]
) -> None:
    """As a list, with 422 (FM7)."""
    answer = await post(http, acme.voice, **changed)
    assert answer.status_code == 422, answer.text
    assert answer.json()["detail"][0]["loc"] == where


async def test_half_a_surrogate_pair_is_named(http: Http, acme: Speaking) -> None:
    """JSON can hold it, text cannot."""
    raw = b'{"text": "half a pair \\ud83d"}'
    kind = {"Content-Type": "application/json"}
    answer = await http.post(f"/v1/text-to-speech/{acme.voice}", content=raw, headers=kind)
    assert (answer.status_code, answer.json()["detail"][0]["loc"]) == (422, ["body", "text"])


async def test_keys_and_voices_that_open_nothing(
    http: Http, acme: Speaking, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """401, 403, 404; another tenant's voice in the words of an unknown one."""
    other = await make_tenant(f"other {uuid4()}")
    enrolling = await make_tenant(f"enrolling {uuid4()}", scopes=("enrol",))
    foreign, unknown = str(await make_voice(other.id, embedding=embed("high"))), str(uuid4())
    details = []
    for key, voice, status, code in (
        ("", acme.voice, 401, "needs_authorization"),
        ("tr_wrong", acme.voice, 401, "invalid_api_key"),
        (enrolling.key, acme.voice, 403, "missing_permissions"),
        (acme.tenant.key, foreign, 404, "voice_not_found"),
        (acme.tenant.key, unknown, 404, "voice_not_found"),
        (acme.tenant.key, "no-voice", 404, "voice_not_found"),
    ):
        answer = await http.post(f"/v1/text-to-speech/{voice}/stream", json={"text": TEXT}, headers={"xi-api-key": key})
        detail = answer.json()["detail"]
        assert (answer.status_code, detail["status"]) == (status, code)
        details.append(detail["message"].replace(voice, "X"))
    assert details[3] == details[4]


async def test_a_client_that_hangs_up_costs_nothing_any_more(stack: RunningStack, http: Http, acme: Speaking) -> None:
    """Whichever way it listened."""
    for ending in ENDINGS:
        path = f"/v1/text-to-speech/{acme.voice}{ending}"
        async with http.stream("POST", path, json={"text": LONG}, params={"output_format": "pcm_24000"}) as answer:
            assert answer.status_code == 200
            await anext(answer.aiter_bytes())
        wait_until(lambda: contexts(stack) == 0)


async def test_a_client_that_leaves_before_the_first_sound_costs_nothing(
    stack: RunningStack, http: Http, acme: Speaking
) -> None:
    """The worker stands still, so that nothing is there yet; the context goes with the client all the same."""
    stack.pause("worker")
    try:
        speaking = asyncio.create_task(post(http, acme.voice, "/with-timestamps", text=LONG))
        await asyncio.to_thread(wait_until, lambda: contexts(stack) == 1)
        speaking.cancel()
        await asyncio.gather(speaking, return_exceptions=True)
        await asyncio.to_thread(wait_until, lambda: contexts(stack) == 0)
    finally:
        stack.resume("worker")


async def test_nothing_else_is_there(http: Http) -> None:
    """In the dialect's own shape."""
    answer = await http.post("/v1/text-to-dialogue/stream", json={})
    assert (answer.status_code, answer.json()["detail"]["status"]) == (404, "not_found")
    answer = await http.get("/v1/text-to-speech/x")
    assert (answer.status_code, answer.json()["detail"]["status"]) == (405, "method_not_allowed")
