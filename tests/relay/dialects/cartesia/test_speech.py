"""`/tts/bytes` and `/tts/sse` of a running relay and worker."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import av
import httpx2
import numpy as np
import pytest

from relay.dialects.cartesia.frames import chunk
from tests.conftest import MakeTenant, MakeVoice, RunningStack
from tests.relay.dialects.cartesia.conftest import TEXT, Http, Speaking, find_error
from tests.relay.dialects.cartesia.wire import RAW, Frame, audio, kinds, words
from tests.system.conftest import embed

ONE_STACK = True
ENCODINGS = {"pcm_s16le": 2, "pcm_f32le": 4, "pcm_mulaw": 1, "pcm_alaw": 1}
_DECODERS = {"pcm_s16le": "s16le", "pcm_f32le": "f32le", "pcm_mulaw": "mulaw", "pcm_alaw": "alaw"}


async def _speak(http: Http, acme: Speaking, path: str = "/tts/bytes", **changed: Any) -> httpx2.Response:
    return await http.post(path, json=acme.ask(**{"transcript": TEXT, **changed}))


def _decode(content: bytes, **options: Any) -> tuple[np.ndarray[Any, np.dtype[np.float64]], int]:
    """Samples within -1..1 and their rate, as FFmpeg reads a file."""
    with av.open(io.BytesIO(content), "r", **options) as container:
        frames = list(container.decode(audio=0))
    samples = np.concatenate([frame.to_ndarray().reshape(-1) for frame in frames])
    scale = np.iinfo(samples.dtype).max if samples.dtype.kind == "i" else 1
    return samples.astype(np.float64) / scale, frames[0].sample_rate


def _events(answer: httpx2.Response) -> list[Frame]:
    blocks = [block.splitlines() for block in answer.text.split("\n\n") if block]
    events = [json.loads(data.removeprefix("data: ")) for _, data in blocks]
    assert [kind for kind, _ in blocks] == [f"event: {event['type']}" for event in events]
    return events


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("rate", [8000, 16000, 22050, 24000, 44100, 48000])
async def test_raw_samples_are_of_the_encoding_and_the_rate(
    http: Http, acme: Speaking, encoding: str, rate: int
) -> None:
    """As many seconds in each, and the same sound."""
    reference = await _speak(http, acme)
    assert (reference.status_code, reference.headers["content-type"]) == (200, "audio/pcm")
    answer = await _speak(http, acme, output_format={"container": "raw", "encoding": encoding, "sample_rate": rate})
    size = ENCODINGS[encoding]
    assert len(answer.content) % size == 0
    assert abs(len(answer.content) / size / rate - len(reference.content) / 48_000) < 0.001
    samples, _ = _decode(answer.content, format=_DECODERS[encoding], options={"sample_rate": str(rate)})
    expected = np.frombuffer(reference.content, "<i2") / 32768
    assert 0.5 < np.sqrt(np.mean(samples**2)) / np.sqrt(np.mean(expected**2)) < 1.5


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_a_wav_file_says_what_is_in_it(http: Http, acme: Speaking, encoding: str) -> None:
    """FFmpeg reads all of its samples, in all four encodings."""
    raw = await _speak(http, acme, output_format={"container": "raw", "encoding": encoding, "sample_rate": 44100})
    wav = await _speak(http, acme, output_format={"container": "wav", "encoding": encoding, "sample_rate": 44100})
    assert (wav.headers["content-type"], wav.content[:4]) == ("audio/wav", b"RIFF")
    assert wav.content.endswith(raw.content)
    samples, rate = _decode(wav.content)
    assert (len(samples), rate) == (len(raw.content) // ENCODINGS[encoding], 44100)


@pytest.mark.parametrize(("rate", "bit_rate"), [(44100, 128_000), (24000, 64_000), (8000, 32_000), (48000, None)])
async def test_mp3_comes_at_its_rates(http: Http, acme: Speaking, rate: int, bit_rate: int | None) -> None:
    """Whole, as far as its frames of a fixed length let it."""
    reference = await _speak(http, acme)
    format = {"container": "mp3", "sample_rate": rate} | ({} if bit_rate is None else {"bit_rate": bit_rate})
    answer = await _speak(http, acme, output_format=format)
    assert answer.headers["content-type"] == "audio/mpeg"
    samples, decoded = _decode(answer.content)
    assert decoded == rate
    assert 0 <= len(samples) / rate - len(reference.content) / 48_000 < 0.3


async def test_the_speed_is_obeyed(http: Http, acme: Speaking) -> None:
    """In both of the ways to say it."""
    plain, fast, slow = [
        len((await _speak(http, acme, **changed)).content)
        for changed in ({}, {"generation_config": {"speed": 1.5}}, {"speed": "slow"})
    ]
    assert abs(plain / fast - 1.5) < 0.01
    assert abs(plain / slow - 0.8) < 0.01


async def test_events_are_the_frames_of_the_websocket(http: Http, acme: Speaking) -> None:
    """Chunks, words with their times, `done`; the context's id comes back where there was one."""
    answer = await _speak(http, acme, "/tts/sse", context_id="mine", add_timestamps=True)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = _events(answer)
    assert kinds(events)[-1] == "done"
    assert audio(events, "mine") == (await _speak(http, acme)).content
    assert [word for word, _, _ in words(events, "mine")] == TEXT.split()
    plain = _events(await _speak(http, acme, "/tts/sse"))
    assert kinds(plain) == ["chunk", "done"]
    assert {event["context_id"] for event in plain} == {None}


async def test_tags_are_not_spoken(http: Http, acme: Speaking) -> None:
    """Pauses, emotions, speeds and the like have no effect here; what they hold is read."""
    tagged = '<emotion value="happy" />Good morning. <speed ratio="1.2"/>This is a <spell>short</spell> test.'
    heard, plain = [len((await _speak(http, acme, transcript=text)).content) for text in (tagged, TEXT)]
    assert abs(heard - plain) < 48_000 * 0.5
    events = _events(await _speak(http, acme, "/tts/sse", transcript=tagged, add_timestamps=True))
    assert all(word in tagged for word, _, _ in words(events, None))


async def test_what_cannot_be_spoken_is_an_error_over_http(http: Http, acme: Speaking) -> None:
    """Before anything else is sent, with the field that is at fault."""
    cases: list[tuple[dict[str, Any], int, str, str]] = [
        ({"transcript": ""}, 400, "transcript_empty", "nothing that can be spoken"),
        ({"transcript": " \n"}, 400, "transcript_empty", "nothing that can be spoken"),
        ({"transcript": "🎉🎉"}, 400, "transcript_empty", "nothing that can be spoken"),
        ({"transcript": "a" * 10_001}, 400, "transcript_too_long", "10,000"),
        ({"transcript": "a" * 100_000}, 413, "body_too_large", "KiB"),
        ({"transcript": 5}, 400, "invalid_request", "transcript"),
        ({"voice": "nobody"}, 404, "voice_not_found", "nobody"),
        ({"voice": {"mode": "embedding", "embedding": [0.1]}}, 400, "invalid_request", "consent"),
        ({"output_format": None}, 400, "invalid_request", "output_format"),
        ({"output_format": {**RAW, "container": "ogg"}}, 400, "invalid_request", "output_format.container"),
        ({"language": "fr"}, 400, "invalid_request", "language"),
    ]
    for changed, status, code, named in cases:
        for path in ("/tts/bytes", "/tts/sse"):
            assert named in find_error(await _speak(http, acme, path, **changed), status, code)
    loud = await _speak(http, acme, output_format={"container": "mp3", "sample_rate": 8000, "bit_rate": 192_000})
    assert "output_format.bit_rate" in find_error(loud, 400, "invalid_request")
    wav = await _speak(http, acme, "/tts/sse", output_format={**RAW, "container": "wav"})
    assert "output_format.container" in find_error(wav, 400, "invalid_request")
    for content in (b"{", b"[]", b"\xff"):
        answer = await http.post("/tts/bytes", content=content)
        find_error(answer, 400, "invalid_request")


async def test_strangers_voices_and_keys_open_nothing(
    http: Http, acme: Speaking, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """A wrong key is 401, another tenant's voice 404."""
    wrong = await http.post("/tts/bytes", json=acme.ask(TEXT), headers={"X-API-Key": "tr_wrong"})
    find_error(wrong, 401, "unauthorized")
    assert wrong.headers["www-authenticate"] == "Bearer"
    foreign = str(await make_voice((await make_tenant("other")).id, embedding=embed("high")))
    find_error(await _speak(http, acme, voice=foreign), 404, "voice_not_found")


async def test_the_sdks_header_opens_as_well(http: Http, acme: Speaking) -> None:
    """`Authorization: Bearer`; the version may be any or none."""
    headers = {"X-API-Key": "", "Authorization": f"Bearer {acme.tenant.key}", "Cartesia-Version": "1999-01-01"}
    answer = await http.post("/tts/bytes", json=acme.ask("Hello."), headers=headers)
    assert answer.status_code == 200


async def test_the_service_says_that_it_is_there(http: Http, stack: RunningStack) -> None:
    """Without a key; and what is not there says so in the shape of all errors."""
    for path in ("/", "/status"):
        answer = await http.get(path, headers={"X-API-Key": ""})
        assert answer.json()["ok"] is True
    find_error(await http.get("/stt"), 404, "not_found")
    wrong = await http.get("/tts/bytes")
    find_error(wrong, 405, "method_not_allowed")
    assert wrong.headers["allow"] == "POST"


def test_base64_is_what_clients_decode() -> None:
    """With padding, in the usual alphabet (RFC 4648, section 4)."""
    assert base64.b64decode(str(chunk("c", b"\xfb\xff\x00", 1.0)["data"]), validate=True) == b"\xfb\xff\x00"
