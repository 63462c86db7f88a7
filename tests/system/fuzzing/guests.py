"""A conversation of each WebSocket protocol, begun in a few messages, for whoever then does not go on with it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from websockets.asyncio.client import ClientConnection

from tests.system.fuzzing.conftest import Scene
from tests.system.fuzzing.sockets import reach

LOUDEST = "f32_48000"
"""192 kB a second: what nobody reads fills the buffers of a kernel soon."""
_LOUDEST_RAW = {"container": "raw", "encoding": "pcm_f32le", "sample_rate": 48000}


@dataclass(frozen=True, slots=True)
class Guest:
    """How a protocol is begun and gone on with."""

    path: Callable[[Scene], str]
    headers: Callable[[Scene], dict[str, str]]
    begin: Callable[[Scene], list[dict[str, Any]]]
    say: Callable[[Scene, str], dict[str, Any]]
    find_error: Callable[[dict[str, Any]], str | None]
    """The code of a message that is an error."""


def _speak_elevenlabs(kind: str, **named: str) -> Guest:
    return Guest(
        lambda scene: (
            f"/elevenlabs/v1/text-to-speech/{scene.voice}/{kind}?output_format={LOUDEST}&enable_ssml_parsing=true"
        ),
        lambda scene: {"xi-api-key": scene.key},
        lambda _: [{"text": " ", **named}],
        lambda _, text: {"text": text, **named},
        lambda message: message.get("error"),
    )


GUESTS = {
    "native": Guest(
        lambda _: "/v1/stream",
        lambda scene: {"Authorization": f"Bearer {scene.key}"},
        lambda scene: [{"type": "open", "context": "c", "voice": scene.voice, "format": LOUDEST}],
        lambda _, text: {"type": "text", "context": "c", "text": text},
        lambda message: message["code"] if message["type"] == "error" else None,
    ),
    "elevenlabs single": _speak_elevenlabs("stream-input"),
    "elevenlabs multi": _speak_elevenlabs("multi-stream-input", context_id="c"),
    "cartesia": Guest(
        lambda _: "/cartesia/tts/websocket",
        lambda scene: {"X-API-Key": scene.key},
        lambda _: [],
        lambda scene, text: {
            "transcript": text,
            "voice": {"mode": "id", "id": scene.voice},
            "output_format": _LOUDEST_RAW,
            "context_id": "c",
            "continue": True,
        },
        lambda message: message["error_code"] if message["type"] == "error" else None,
    ),
}


@asynccontextmanager
async def begin(guest: Guest, scene: Scene) -> AsyncIterator[ClientConnection]:
    """A connection on which a text can be said."""
    async with reach(scene.url, guest.path(scene), guest.headers(scene)) as connection:
        assert connection is not None
        for message in guest.begin(scene):
            await connection.send(json.dumps(message))
        yield connection
