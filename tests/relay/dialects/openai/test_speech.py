"""Speech in OpenAI's dialect from a running relay and worker: whole, in every format, interrupted, refused."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import struct
import time
from typing import Any
from uuid import uuid4

import av
import httpx2
import pytest

from relay.audio.encoding import make_encoder
from relay.dialects.openai.requests import FORMATS
from relay.dialects.openai.speech import explain_voice, write_delta, write_done, write_error
from relay.errors import SentenceFailed
from tests.conftest import MakeTenant, MakeVoice, RunningStack, wait_until
from tests.relay.dialects.openai.conftest import PATH, Http, Speaking, count_contexts
from tests.system.conftest import LONG_SENTENCE, embed

ONE_STACK = True
TEXT = "Good morning. This is a short test."
LONG = f"{LONG_SENTENCE}. " * 20
TYPES = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}
GONE_S = 1.0


def _events(body: str) -> list[dict[str, Any]]:
    blocks = [block for block in body.split("\n\n") if block]
    assert all(block.startswith("data: ") for block in blocks)
    return [json.loads(block.removeprefix("data: ")) for block in blocks]


def _seconds(content: bytes, kind: str) -> float:
    if kind == "pcm":
        assert len(content) % 2 == 0
        return len(content) / 48_000
    with av.open(io.BytesIO(content), "r") as container:
        frames = list(container.decode(audio=0))
    return float(sum(frame.samples for frame in frames) / frames[0].sample_rate)


async def _speak(http: Http, speaking: Speaking, **changed: Any) -> httpx2.Response:
    asked = {"model": "gpt-4o-mini-tts", "input": TEXT, "voice": speaking.voice, "response_format": "pcm"}
    return await http.post(PATH, json={**asked, **changed})


async def _refuse(http: Http, speaking: Speaking, status: int, param: str | None, **changed: Any) -> dict[str, Any]:
    answer = await _speak(http, speaking, **changed)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json"), answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param, error
    return error


def test_an_event_is_one_line_of_json() -> None:
    """Each begins with `data: ` and ends with an empty line, as clients that know nothing of SSE read them."""
    error = SentenceFailed("synthesis_failed", "no\nsound", retryable=False)
    delta, done, failed = _events((write_delta(b"\0\xff") + write_done(10, 1921) + write_error(error)).decode())
    assert (delta["type"], base64.b64decode(delta["audio"])) == ("speech.audio.delta", b"\0\xff")
    usage = {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}
    assert done == {"type": "speech.audio.done", "usage": usage}
    assert (failed["type"], failed["error"]["message"]) == ("error", "no\nsound")


def test_an_unknown_voice_says_how_to_name_one() -> None:
    """With the request that sets the alias, where the name can be one."""
    assert 'PUT /v1/aliases/alloy {"voice": "<its id>"}' in explain_voice("alloy").message
    assert "PUT" not in explain_voice("no alias!").message


async def test_every_format_is_honoured_and_as_long(http: Http, acme: Speaking) -> None:
    """With its own Content-Type (FM4), decodable to its end (FM3), and as long as the samples (FM2)."""
    spoken = await _speak(http, acme)
    seconds = _seconds(spoken.content, "pcm")
    assert 1 < seconds < 8
    flac = make_encoder(FORMATS["flac"])
    assert (await _speak(http, acme, response_format="flac")).content == flac.encode(spoken.content) + flac.finish()
    for kind, media_type in TYPES.items():
        answer = await _speak(http, acme, response_format=kind)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].partition(";")[0] == media_type
        assert answer.headers["x-request-id"].startswith("req_")
        assert _seconds(answer.content, kind) == pytest.approx(seconds, abs=0.15), kind
    assert (await http.post(PATH, json={"input": TEXT, "voice": {"id": acme.voice}})).headers[
        "content-type"
    ] == "audio/mpeg"


async def test_a_wav_says_that_its_length_is_not_known(http: Http, acme: Speaking) -> None:
    """0xFFFFFFFF in both places, since the header goes out before the speech is spoken; the samples are the same."""
    wav, pcm = (await _speak(http, acme, response_format="wav")).content, (await _speak(http, acme)).content
    assert (wav[:4], wav[8:12], wav[36:40]) == (b"RIFF", b"WAVE", b"data")
    assert struct.unpack("<I", wav[4:8]) == struct.unpack("<I", wav[40:44]) == (0xFFFFFFFF,)
    assert wav[44:] == pcm


async def test_events_hold_the_same_audio(http: Http, acme: Speaking) -> None:
    """Deltas, then what it has cost: a character is a token, and so are 80 ms."""
    pcm = (await _speak(http, acme)).content
    answer = await _speak(http, acme, stream_format="sse")
    assert answer.headers["content-type"].partition(";")[0] == "text/event-stream"
    *deltas, done = _events(answer.text)
    assert {event["type"] for event in deltas} == {"speech.audio.delta"}
    assert b"".join(base64.b64decode(event["audio"]) for event in deltas) == pcm
    assert done["type"] == "speech.audio.done"
    assert done["usage"]["input_tokens"] == len(TEXT)
    assert done["usage"]["output_tokens"] == -(-len(pcm) // 2 // 1920)


@pytest.mark.parametrize("speed", [0.5, 2.0])
async def test_speed_changes_the_duration(speed: float, http: Http, acme: Speaking) -> None:
    """Twice as fast is half as long."""
    pcm, changed = (await _speak(http, acme)).content, (await _speak(http, acme, speed=speed)).content
    assert len(changed) / len(pcm) == pytest.approx(1 / speed, rel=0.02)


async def test_an_alias_is_as_good_as_an_id(http: Http, acme: Speaking) -> None:
    """`alloy` is whichever voice of its own a tenant has given that name."""
    missing = await _refuse(http, acme, 404, "voice", voice="alloy")
    assert missing["code"] == "voice_not_found"
    assert "PUT /v1/aliases/alloy" in missing["message"]
    assert (await http.put("/v1/aliases/alloy", json={"voice": acme.voice})).status_code == 200
    assert (await _speak(http, acme, voice="alloy")).content == (await _speak(http, acme)).content


async def test_a_foreign_voice_is_an_unknown_one(
    http: Http, acme: Speaking, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """In the same words, so that nobody learns what others have."""
    other = await make_tenant(f"other {uuid4()}")
    foreign = str(await make_voice(other.id, embedding=embed("high"), name="high"))
    messages = [
        (await _refuse(http, acme, 404, "voice", voice=name))["message"].replace(name, "X")
        for name in (foreign, str(uuid4()))
    ]
    assert messages[0] == messages[1]


@pytest.mark.parametrize(
    "text",
    [" ", "\n\t", "😀😀", "…", "\u200b", "\0", "!?", "مرحبا بالعالم"],
)
async def test_what_has_no_sound_is_a_bad_request(text: str, http: Http, acme: Speaking) -> None:
    """Never a 200 without audio, nor one with an error in it."""
    error = await _refuse(http, acme, 400, "input", input=text)
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "text",
    [
        "<b>Hello</b> there.",
        "<speak>Hello there.</speak>",
        "Hello\0 there\x07.",
        "Hello 😀 there.",
        "Grüße from Zürich.",
    ],
)
async def test_whatever_has_a_sound_is_spoken(text: str, http: Http, acme: Speaking) -> None:
    """Markup, controls and emoji beside words cost nobody the words."""
    answer = await _speak(http, acme, input=text)
    assert (answer.status_code, len(answer.content) % 2) == (200, 0)
    assert _seconds(answer.content, "pcm") > 0.2


async def test_a_bad_request_names_its_field(http: Http, acme: Speaking) -> None:
    """Over HTTP as in the parser."""
    await _refuse(http, acme, 400, "response_format", response_format="mpeg")
    await _refuse(http, acme, 400, "input", input="x" * 4097)
    await _refuse(http, acme, 400, "speed", speed=5)
    raw = b'{"input": "half a pair \\ud83d", "voice": "alloy"}'
    answer = await http.post(PATH, content=raw, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input")
    plain = await http.post(PATH, content=raw, headers={"Content-Type": "text/plain"})
    assert (plain.status_code, plain.json()["error"]["code"]) == (415, "unsupported_media_type")


async def test_ten_megabytes_are_refused_before_they_are_read(http: Http, acme: Speaking) -> None:
    """Declared or not, more than the bound is 413, and the relay goes on."""

    async def endless() -> Any:
        for _ in range(160):
            yield b"x" * 65_536

    big = b'{"input": "' + b"x" * 10_000_000 + b'"}'
    kind = {"Content-Type": "application/json"}
    for content in (big, endless()):
        answer = await http.post(PATH, content=content, headers=kind)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
    assert (await _speak(http, acme)).status_code == 200


async def test_no_key_and_a_wrong_one_open_nothing(stack: RunningStack, make_tenant: MakeTenant) -> None:
    """401 before anything is read of the request; a key without the scope is 403."""
    enrolling = await make_tenant(f"enrolling {uuid4()}", scopes=("enrol",))
    cases = [
        ({}, 401),
        ({"Authorization": "Bearer tr_wrong"}, 401),
        ({"Authorization": f"Bearer {enrolling.key}"}, 403),
    ]
    async with httpx2.AsyncClient(base_url=stack.relay_url) as client:
        for headers, status in cases:
            answer = await client.post(PATH, content=b"no json", headers=headers)
            assert answer.status_code == status
            assert answer.json()["error"]["code"] == ("invalid_api_key" if status == 401 else "insufficient_scope")


async def test_a_client_that_hangs_up_costs_nothing_any_more(stack: RunningStack, http: Http, acme: Speaking) -> None:
    """Within a second of its going its context is gone, whichever way it listened."""
    for stream_format in ("audio", "sse"):
        asked = {"input": LONG, "voice": acme.voice, "stream_format": stream_format, "response_format": "pcm"}
        async with http.stream("POST", PATH, json=asked) as answer:
            assert answer.status_code == 200
            pieces = answer.aiter_bytes()
            await anext(pieces)
            assert await asyncio.to_thread(count_contexts, stack) == 1
        left_at = time.monotonic()
        await asyncio.to_thread(wait_until, lambda: count_contexts(stack) == 0)
        assert time.monotonic() - left_at < GONE_S


async def test_a_client_that_leaves_before_the_first_sound_costs_nothing(
    stack: RunningStack, http: Http, acme: Speaking
) -> None:
    """The worker stands still, so that nothing is there yet; the context goes with the client all the same."""
    stack.pause("worker")
    try:
        speaking = asyncio.create_task(_speak(http, acme, input=LONG))
        await asyncio.to_thread(wait_until, lambda: count_contexts(stack) == 1)
        speaking.cancel()
        await asyncio.gather(speaking, return_exceptions=True)
        left_at = time.monotonic()
        await asyncio.to_thread(wait_until, lambda: count_contexts(stack) == 0)
        assert time.monotonic() - left_at < GONE_S
    finally:
        stack.resume("worker")


async def test_two_who_speak_at_once_hear_their_own(http: Http, acme: Speaking) -> None:
    """To the byte what each of them hears alone (CQ1)."""
    texts = [f"This is speaker number {number}. The weather is fine." for number in ("one", "two", "three", "four")]
    alone = [(await _speak(http, acme, input=text)).content for text in texts]
    together = await asyncio.gather(*(_speak(http, acme, input=text) for text in texts * 2))
    assert [answer.content for answer in together] == alone * 2


async def test_models_and_the_greeting_are_there(stack: RunningStack, http: Http) -> None:
    """LiveKit greets the base URL to have a connection ready; lists of models fill what a user chooses from."""
    for path in ("/openai/v1", "/openai/v1/"):
        assert httpx2.get(stack.relay_url + path).status_code == 200
    names = [model["id"] for model in (await http.get("/openai/v1/models")).json()["data"]]
    assert (await http.get(f"/openai/v1/models/{names[-1]}")).json()["object"] == "model"
    missing = await http.get("/openai/v1/models/whisper-1")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")
    nothing = await http.get("/openai/v1/chat/completions")
    assert (nothing.status_code, nothing.json()["error"]["code"]) == (404, "unknown_url")
    wrong = await http.get(PATH)
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
