"""The WebSocket protocols as they are spoken by who means well, and how each of them says that something is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any
from urllib.parse import quote, urlencode

from tests.system.fuzzing.mutations import Message
from tests.system.fuzzing.texts import make_text

PROTOCOL_CODES = frozenset({1002, 1003, 1007, 1009})
"""What the server's library answers to what is no WebSocket (RFC 6455, section 7.4.1)."""
_FORMATS = (
    "pcm_24000",
    "pcm_24000",
    "pcm_8000",
    "ulaw_8000",
    "mp3_24000_32",
    "opus_48000_32",
    "flac_24000",
    "mp9_1",
    "",
)
_RAW = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24000}
_IDS = ("a", "b", "a.b-c_d")


@dataclass(frozen=True, slots=True)
class Who:
    """Who speaks; and a voice that is not theirs."""

    key: str
    voice: str
    foreign: str

    def draw(self, random: Random) -> str:
        """Mostly a voice of theirs."""
        return random.choice((*[self.voice] * 8, self.foreign, "nobody", "00000000-0000-0000-0000-000000000000"))


@dataclass(frozen=True, slots=True)
class Dialect:
    """One protocol."""

    name: str
    find: Callable[[Random, Who], tuple[str, dict[str, str]]]
    """Path with query, and headers."""
    talk: Callable[[Random, Who], Iterator[Message]]
    """A conversation without end."""
    check: Callable[[Message], None]
    """Fails for an error that is not in the dialect's own shape, and for a fault of the relay's."""
    codes: frozenset[int] = frozenset({1000, 1008}) | PROTOCOL_CODES
    """By which the relay may close."""


def _find_native(random: Random, who: Who) -> tuple[str, dict[str, str]]:
    return "/v1/stream", {"Authorization": f"Bearer {who.key}"}


def _talk_native(random: Random, who: Who) -> Iterator[Message]:
    while True:
        context = {"context": random.choice(_IDS)}
        yield {
            "type": "open",
            "voice": who.draw(random),
            "mel": random.random() < 0.3,
            "format": random.choice(_FORMATS),
            "speed": random.choice((1.0, 1.0, 0.5, 4.0, 9.0)),
        } | context
        for _ in range(random.randrange(4)):
            yield {"type": "text", "text": make_text(random)} | context
            yield {"type": random.choice(("flush", "text", "end", "cancel", "end")), "text": "More. "} | context
        token = random.choice(("", "x" * 32, "\x00", "0" * 64))
        yield {
            "type": "resume",
            "token": token,
            "sentence": random.randrange(3),
            "chunk": random.choice((-1, 0, 9)),
        } | context


def _check_native(message: Message) -> None:
    if message["type"] == "error":
        assert message["message"] and message["code"] != "internal", message
        assert {"field", "retryable", "context", "unspoken"} <= set(message), message
    if message["type"] == "opened":
        assert message["resume"], message


def _find_elevenlabs(kind: str) -> Callable[[Random, Who], tuple[str, dict[str, str]]]:
    def find(random: Random, who: Who) -> tuple[str, dict[str, str]]:
        query = {
            "output_format": random.choice(_FORMATS),
            "enable_ssml_parsing": random.choice(("true", "false", "maybe")),
            "auto_mode": random.choice(("true", "false")),
            "sync_alignment": random.choice(("true", "false")),
        }
        chosen = {name: value for name, value in query.items() if random.random() < 0.4}
        # Not the twenty seconds that are usual, for which every test would wait.
        chosen["inactivity_timeout"] = random.choice((*["1"] * 8, "181", "-1", "x"))
        voice = random.choice((*[who.draw(random)] * 12, "\x00", "a" * 300, "..%2f..", "é"))
        headers = {"xi-api-key": who.key} if random.random() < 0.8 else {}
        return f"/elevenlabs/v1/text-to-speech/{quote(voice)}/{kind}?{urlencode(chosen)}", headers

    return find


def _talk_elevenlabs(random: Random, who: Who) -> Iterator[Message]:
    yield {"text": " ", "xi_api_key": who.key, "voice_settings": {"speed": random.choice((1.0, 0.7, 9.0))}}
    while True:
        context = {random.choice(("context_id", "contextId")): random.choice(_IDS)} if random.random() < 0.8 else {}
        yield {"text": make_text(random), "flush": random.random() < 0.3} | context
        drawn = random.random()
        if drawn < 0.2:
            yield {"close_context": True} | context
        elif drawn < 0.25:
            yield {"close_socket": True}
        elif drawn < 0.35:
            yield {"text": ""} | context
        elif drawn < 0.4:
            yield {"text": " ", "voice_settings": {"speed": 1.2}, "generation_config": {"chunk_length_schedule": [1]}}


def _check_elevenlabs(message: Message) -> None:
    if message.get("error"):
        assert message["message"] and message["error"] != "internal_error", message
        assert message["code"] == 1008, message
    else:
        assert "isFinal" in message, message


def _find_cartesia(random: Random, who: Who) -> tuple[str, dict[str, str]]:
    if random.random() < 0.5:
        return "/cartesia/tts/websocket", {"X-API-Key": who.key}
    return f"/cartesia/tts/websocket?{urlencode({'api_key': who.key, 'cartesia_version': '2025-04-16'})}", {}


def _talk_cartesia(random: Random, who: Who) -> Iterator[Message]:
    while True:
        context: dict[str, Any] = {"context_id": random.choice(_IDS)}
        if random.random() < 0.15:
            yield {"cancel": True} | context
        yield {
            "transcript": make_text(random),
            "voice": {"mode": "id", "id": who.draw(random)},
            "model_id": "sonic-2",
            "output_format": {**_RAW, "encoding": random.choice(("pcm_s16le", "pcm_s16le", "pcm_mulaw", "pcm_f32le"))},
            "language": random.choice(("en", "en", "en", "zz")),
            "continue": random.random() < 0.6,
            "flush": random.random() < 0.2,
            "add_timestamps": random.random() < 0.5,
            "max_buffer_delay_ms": random.choice((0, 100, 3000, 9999)),
            "generation_config": {"speed": random.choice((1.0, 1.0, 0.6, 77))},
        } | context


def _check_cartesia(message: Message) -> None:
    assert message["type"] in ("chunk", "timestamps", "flush_done", "done", "error"), message
    if message["type"] == "error":
        assert message["message"] and message["title"] and message["error_code"] != "internal", message
        assert message["status_code"] != 500 and message["request_id"] and "context_id" in message, message


DIALECTS = (
    Dialect("native", _find_native, _talk_native, _check_native),
    Dialect("elevenlabs single", _find_elevenlabs("stream-input"), _talk_elevenlabs, _check_elevenlabs),
    Dialect("elevenlabs multi", _find_elevenlabs("multi-stream-input"), _talk_elevenlabs, _check_elevenlabs),
    Dialect("cartesia", _find_cartesia, _talk_cartesia, _check_cartesia),
)
