"""Requests to every door over HTTP as they are meant, and how each of the doors says no."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any
from urllib.parse import quote

from tests.system.fuzzing.dialects import Who
from tests.system.fuzzing.mutations import Message, mutate, spell
from tests.system.fuzzing.texts import make_text

BOUNDARY = "a-boundary"
_JSON = "application/json"


@dataclass(slots=True)
class Asked:
    """A request; the body is what is sent, whatever its head says of it."""

    method: str
    path: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def door(self) -> str:
        """The first part of its path."""
        return self.path.split("/")[1]


def draw_request(random: Random, who: Who) -> Asked:
    """A request to any door, with something wrong in most of them."""
    return random.choice((_ask_speech, _ask_speech, _ask_speech, _ask_form, _ask_thing, _ask_upgrade))(random, who)


def check_answer(door: str, status: int, answer: Message) -> None:
    """An error is in the shape of its door, says what is wrong, and is no fault of the relay's."""
    assert 400 <= status < 500 or status == 503, (door, status, answer)
    _SHAPES.get(door, _check_problem)(answer)


def _ask_speech(random: Random, who: Who) -> Asked:
    make = random.choice((_elevenlabs, _openai, _cartesia))
    path, headers, message = make(random, who)
    text = spell(random, mutate(random, message))
    body = text.encode("utf-8", "surrogatepass") if random.random() < 0.95 else random.randbytes(300)
    return Asked("POST", path, {"Content-Type": _JSON, **headers}, body)


def _elevenlabs(random: Random, who: Who) -> tuple[str, dict[str, str], Message]:
    kind = random.choice(("", "/stream", "/with-timestamps", "/stream/with-timestamps"))
    query = random.choice(("", "?output_format=pcm_8000", "?output_format=%00", "?output_format=mp3_22050_32&x=%ff"))
    voice = random.choice((quote(who.draw(random)), "%ED%A0%80", "%00", "a" * 5000))
    message = {"text": make_text(random), "model_id": "x", "voice_settings": {"speed": 1.0, "stability": 0.5}}
    return f"/elevenlabs/v1/text-to-speech/{voice}{kind}{query}", {"xi-api-key": who.key}, message


def _openai(random: Random, who: Who) -> tuple[str, dict[str, str], Message]:
    message = {
        "model": "tts-1",
        "input": make_text(random),
        "voice": random.choice((who.draw(random), {"id": who.draw(random)})),
        "response_format": random.choice(("pcm", "pcm", "mp3", "opus", "flac", "aac", "wav", "mpeg")),
        "speed": random.choice((1.0, 1.0, 0.25, 5)),
        "stream_format": random.choice(("sse", "audio", "audio")),
    }
    return "/openai/v1/audio/speech", {"Authorization": f"Bearer {who.key}"}, message


def _cartesia(random: Random, who: Who) -> tuple[str, dict[str, str], Message]:
    container = random.choice(("raw", "raw", "wav", "mp3"))
    message = {
        "transcript": make_text(random),
        "voice": {"mode": "id", "id": who.draw(random)},
        "model_id": "sonic-2",
        "output_format": {
            "container": container,
            "encoding": "pcm_s16le",
            "sample_rate": random.choice((24000, 8000, 7)),
        },
        "add_timestamps": True,
        "generation_config": {"speed": 1.0, "emotion": ["x"]},
    }
    return f"/cartesia/tts/{random.choice(('bytes', 'sse'))}", {"X-API-Key": who.key}, message


def _ask_form(random: Random, who: Who) -> Asked:
    """An enrolment, whose form may be no form."""
    path = random.choice(
        (
            "/v1/voices",
            "/elevenlabs/v1/voices/add",
            "/openai/v1/audio/voices",
            "/openai/v1/audio/voice_consents",
            "/cartesia/voices/clone",
        )
    )
    fields = {
        "name": make_text(random)[:200],
        "consent": who.foreign,
        "language": "en",
        "labels": "[" * 40,
        "mode": "x",
    }
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
        if random.random() < 0.8
    ]
    files = random.choice(("recording", "files", "audio_sample", "clip"))
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{files}"; filename="../../x\x00.wav"\r\n\r\n'
    raw = "".join([*parts, head]).encode("utf-8", "replace") + random.randbytes(random.choice((0, 100, 40_000)))
    raw += f"\r\n--{BOUNDARY}--\r\n".encode()
    if random.random() < 0.4:
        place = random.randrange(len(raw))
        raw = raw[:place] + random.randbytes(random.choice((0, 1, 30))) + raw[place + random.randrange(60) :]
    boundary = random.choice((BOUNDARY, BOUNDARY, BOUNDARY, "", "other", "x" * 300, '"'))
    kind = random.choice((f"multipart/form-data; boundary={boundary}", "multipart/form-data", _JSON))
    return Asked("POST", path, {"Content-Type": kind, **_keys(who)}, raw)


def _ask_thing(random: Random, who: Who) -> Asked:
    """One of what there is to read, change and delete, by an id that is none of theirs."""
    name = random.choice((who.foreign, "nobody", "%00", "%ED%A0%80", "..%2f..", "a" * 3000, "{id}", "é"))
    path = random.choice(
        (
            f"/v1/voices/{name}",
            f"/v1/aliases/{name}",
            f"/v1/voices?limit={name}&after={name}",
            f"/elevenlabs/v1/voices/{name}",
            f"/elevenlabs/v2/voices?page_size={name}&next_page_token={name}",
            f"/openai/v1/models/{name}",
            f"/openai/v1/audio/voices/{name}",
            f"/openai/v1/audio/voice_consents/{name}",
            f"/cartesia/voices/{name}",
            f"/cartesia/voices?starting_after={name}&limit={name}",
            "/cartesia/access-token",
            f"/v1/whep/{name}",
            f"/sessions/{name}/api/offer",
            "/start",
            f"/{name}",
        )
    )
    method = random.choice(("GET", "POST", "PATCH", "PUT", "DELETE", "OPTIONS", "HEAD", "BREW"))
    body = spell(random, mutate(random, {"name": "x", "voice": who.foreign, "grants": {"tts": True}})).encode(
        "utf-8", "surrogatepass"
    )
    kind = random.choice((_JSON, "application/sdp", "application/trickle-ice-sdpfrag", ""))
    return Asked(method, quote(path, safe="/?=&%{}."), {"Content-Type": kind, **_keys(who)}, body)


def _ask_upgrade(random: Random, who: Who) -> Asked:
    """A handshake for a WebSocket (RFC 6455, section 4.1) with something wrong in it."""
    path = random.choice(
        (
            "/v1/stream",
            f"/elevenlabs/v1/text-to-speech/{who.voice}/stream-input",
            f"/elevenlabs/v1/text-to-speech/{who.foreign}/multi-stream-input?xi-api-key=%00",
            "/cartesia/tts/websocket?api_key=%ff",
            "/v1/nothing",
            "/v1/consents",
        )
    )
    headers = {
        "Upgrade": random.choice(("websocket", "websocket", "h2c", "websocket, x")),
        "Connection": random.choice(("Upgrade", "Upgrade", "close", "keep-alive, Upgrade")),
        "Sec-WebSocket-Key": random.choice(("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZQ==", "x", "", "é")),
        "Sec-WebSocket-Version": random.choice(("13", "13", "8", "x", "")),
        "Sec-WebSocket-Protocol": random.choice(("timbrelay.v1", "bearer.x, timbrelay.v1", ",,", "\x01")),
        "Sec-WebSocket-Extensions": random.choice(("permessage-deflate", "x; y=", ";")),
    }
    chosen = {name: value for name, value in headers.items() if random.random() < 0.9}
    keys = _keys(who) if random.random() < 0.7 else {}
    return Asked(random.choice(("GET", "GET", "GET", "POST")), path, {**chosen, **keys}, random.randbytes(30))


def _keys(who: Who) -> dict[str, str]:
    return {"Authorization": f"Bearer {who.key}", "xi-api-key": who.key}


def _check_problem(answer: Message) -> None:
    assert answer["code"] != "internal" and answer["title"] and answer["status"], answer


def _check_elevenlabs(answer: Message) -> None:
    details: Any = answer["detail"]
    for detail in details if isinstance(details, list) else [details]:
        assert detail.get("msg") or detail.get("message"), answer
        assert detail.get("loc") or detail["code"] != "internal_error", answer


def _check_openai(answer: Message) -> None:
    assert set(answer) == {"error"} and {"message", "type", "param", "code"} == set(answer["error"]), answer
    assert answer["error"]["message"] and answer["error"]["code"] != "internal", answer


def _check_cartesia(answer: Message) -> None:
    assert answer["message"] and answer["title"] and answer["request_id"], answer
    assert answer["error_code"] != "internal", answer


_SHAPES: dict[str, Callable[[Message], None]] = {
    "elevenlabs": _check_elevenlabs,
    "openai": _check_openai,
    "cartesia": _check_cartesia,
}


def read_json(body: bytes) -> Message:
    """An answer's body, which has to be one object."""
    answer = json.loads(body)
    assert isinstance(answer, dict), answer
    return answer


def split_chunks(random: Random, body: bytes) -> Iterator[bytes]:
    """The body in pieces of any size."""
    while body:
        size = random.choice((1, 7, 100, 5_000, 100_000))
        yield body[:size]
        body = body[size:]
