"""Every door of speech as a plain client uses it: PCM at the models' own rate out, or the refusal in its words."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import httpx2
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from timbrelay.client import Chunk, Client
from timbrelay.errors import OpsError

DEADLINE_S = 30.0
_RAW = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24000}


@dataclass(frozen=True, slots=True)
class Ask:
    """A text to be spoken."""

    url: str
    key: str
    voice: str
    text: str


class Refusal(Exception):
    """Raised with what a door says instead of speaking."""

    def __init__(self, status: int | None, answer: Any) -> None:
        super().__init__(status, answer)
        self.status = status
        self.answer = answer


Door = Callable[[Ask], Awaitable[bytes]]


async def hear_native(ask: Ask) -> bytes:
    """The native protocol."""
    try:
        async with Client(ask.url, ask.key) as client, client.connect() as connection:
            context = await connection.open(ask.voice)
            await context.send(ask.text)
            await context.end()
            return b"".join([event.pcm async for event in context if isinstance(event, Chunk)])
    except OpsError as error:
        raise Refusal(None, {"code": getattr(error, "code", "")}) from error


async def hear_elevenlabs(ask: Ask) -> bytes:
    """ElevenLabs' `multi-stream-input`."""
    url = f"{_socket_url(ask)}/elevenlabs/v1/text-to-speech/{ask.voice}/multi-stream-input?output_format=pcm_24000"
    pcm = bytearray()
    async with _connect(url, {"xi-api-key": ask.key}) as socket:
        for message in ({"text": " "}, {"text": f"{ask.text} ", "flush": True}, {"close_context": True}):
            await socket.send(json.dumps({**message, "context_id": "c"}))
        async for raw in socket:
            message = json.loads(raw)
            if "error" in message:
                raise Refusal(None, message)
            pcm += base64.b64decode(message.get("audio") or "")
            if message.get("isFinal"):
                break
    return bytes(pcm)


async def hear_elevenlabs_once(ask: Ask) -> bytes:
    """ElevenLabs' `stream-input`."""
    url = f"{_socket_url(ask)}/elevenlabs/v1/text-to-speech/{ask.voice}/stream-input?output_format=pcm_24000"
    pcm = bytearray()
    async with _connect(url, {"xi-api-key": ask.key}) as socket:
        # Who is refused finds the reason in what was sent before the close.
        with suppress(ConnectionClosed):
            for text in (" ", f"{ask.text} ", ""):
                await socket.send(json.dumps({"text": text}))
        async for raw in socket:
            message = json.loads(raw)
            if "error" in message:
                raise Refusal(None, message)
            pcm += base64.b64decode(message.get("audio") or "")
    return bytes(pcm)


async def hear_cartesia(ask: Ask) -> bytes:
    """Cartesia's `/tts/websocket`."""
    pcm = bytearray()
    url = f"{_socket_url(ask)}/cartesia/tts/websocket"
    async with _connect(url, {"X-API-Key": ask.key}) as socket:
        await socket.send(json.dumps({**_cartesia(ask), "context_id": "c", "continue": False}))
        async for raw in socket:
            message = json.loads(raw)
            if message["type"] == "error":
                raise Refusal(message["status_code"], message)
            pcm += base64.b64decode(message.get("data") or "")
            if message["type"] == "done":
                break
    return bytes(pcm)


async def hear_elevenlabs_http(ask: Ask) -> bytes:
    """ElevenLabs' `/stream`."""
    path = f"/elevenlabs/v1/text-to-speech/{ask.voice}/stream?output_format=pcm_24000"
    return await _post(ask, path, {"xi-api-key": ask.key}, {"text": ask.text, "model_id": "any"})


async def hear_openai(ask: Ask) -> bytes:
    """OpenAI's `/v1/audio/speech`."""
    return await _post(ask, "/openai/v1/audio/speech", {"Authorization": f"Bearer {ask.key}"}, _openai(ask))


async def hear_openai_events(ask: Ask) -> bytes:
    """The same as server-sent events."""
    body = {**_openai(ask), "stream_format": "sse"}
    answer = await _post(ask, "/openai/v1/audio/speech", {"Authorization": f"Bearer {ask.key}"}, body)
    events = [json.loads(line[6:]) for line in answer.decode().splitlines() if line.startswith("data: {")]
    assert events[-1]["type"] == "speech.audio.done"
    return b"".join(base64.b64decode(event["audio"]) for event in events[:-1])


async def hear_cartesia_bytes(ask: Ask) -> bytes:
    """Cartesia's `/tts/bytes`."""
    return await _post(ask, "/cartesia/tts/bytes", {"X-API-Key": ask.key}, _cartesia(ask))


DOORS: Mapping[str, Door] = {
    "native": hear_native,
    "elevenlabs multi": hear_elevenlabs,
    "elevenlabs single": hear_elevenlabs_once,
    "elevenlabs http": hear_elevenlabs_http,
    "openai": hear_openai,
    "openai events": hear_openai_events,
    "cartesia": hear_cartesia,
    "cartesia bytes": hear_cartesia_bytes,
}


async def _post(ask: Ask, path: str, headers: dict[str, str], body: dict[str, Any]) -> bytes:
    async with httpx2.AsyncClient(base_url=ask.url, timeout=DEADLINE_S, trust_env=False) as client:
        answer = await client.post(path, headers=headers, json=body)
    if answer.is_error:
        raise Refusal(answer.status_code, answer.json())
    return answer.content


@asynccontextmanager
async def _connect(url: str, headers: dict[str, str]) -> AsyncIterator[ClientConnection]:
    try:
        async with connect(url, additional_headers=headers, proxy=None) as socket:
            yield socket
    except InvalidStatus as error:
        raise Refusal(error.response.status_code, error.response.body) from error


def _openai(ask: Ask) -> dict[str, Any]:
    return {"model": "tts-1", "input": ask.text, "voice": ask.voice, "response_format": "pcm"}


def _cartesia(ask: Ask) -> dict[str, Any]:
    voice = {"mode": "id", "id": ask.voice}
    return {"model_id": "sonic-2", "transcript": ask.text, "voice": voice, "output_format": _RAW, "language": "en"}


def _socket_url(ask: Ask) -> str:
    return "ws" + ask.url.removeprefix("http")
