"""The doors that are WebSockets: one connection, a context for each text."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any
from urllib.parse import urlencode

from websockets.asyncio.client import ClientConnection, connect

from timbrelay.benchmark.doors.door import DoorFault, Site, Speak
from timbrelay.client import Chunk, Client

_MAX_MESSAGE_BYTES = 2**20


@asynccontextmanager
async def open_native(site: Site) -> AsyncIterator[Speak]:
    """The native protocol; the context is open before its text is sent."""
    async with Client(site.url, site.key) as client, client.connect() as connection:

        async def speak(text: str) -> float:
            context = await connection.open(site.voice)
            sent_at, first = time.perf_counter(), 0.0
            await context.send(text)
            await context.end()
            async for event in context:
                if isinstance(event, Chunk) and not first:
                    first = time.perf_counter() - sent_at
            return first

        yield speak


@asynccontextmanager
async def open_elevenlabs(site: Site) -> AsyncIterator[Speak]:
    """ElevenLabs' `multi-stream-input`, as LiveKit and Pipecat use it: the context is announced before its text."""
    query = urlencode({"output_format": "pcm_24000", "inactivity_timeout": 180, "auto_mode": "true"})
    url = f"{site.socket_url}/elevenlabs/v1/text-to-speech/{site.voice}/multi-stream-input?{query}"
    async with _connect(url, {"xi-api-key": site.key}) as socket:
        numbers = count()

        async def speak(text: str) -> float:
            context = f"c{next(numbers)}"
            await _send(socket, {"text": " ", "context_id": context})
            sent_at, first = time.perf_counter(), 0.0
            await _send(socket, {"text": f"{text} ", "context_id": context, "flush": True})
            await _send(socket, {"context_id": context, "close_context": True})
            while True:
                message = await _receive(socket)
                if "error" in message:
                    raise DoorFault("ElevenLabs", str(message))
                if message.get("audio") and not first:
                    first = time.perf_counter() - sent_at
                if message.get("isFinal"):
                    return first

        yield speak


@asynccontextmanager
async def open_cartesia(site: Site) -> AsyncIterator[Speak]:
    """Cartesia's `/tts/websocket`, whose first message opens the context and carries the text."""
    async with _connect(f"{site.socket_url}/cartesia/tts/websocket", {"X-API-Key": site.key}) as socket:
        numbers = count()
        audio = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24000}
        wanted = {"model_id": "sonic-2", "voice": {"mode": "id", "id": site.voice}, "output_format": audio}

        async def speak(text: str) -> float:
            sent_at, first = time.perf_counter(), 0.0
            context = {"context_id": f"c{next(numbers)}", "continue": False, "language": "en"}
            await _send(socket, {**wanted, **context, "transcript": text})
            while True:
                message = await _receive(socket)
                if message.get("type") == "error":
                    raise DoorFault("Cartesia", str(message))
                if message.get("data") and not first:
                    first = time.perf_counter() - sent_at
                if message.get("type") == "done":
                    return first

        yield speak


def _connect(url: str, headers: dict[str, str]) -> connect:
    return connect(url, additional_headers=headers, compression=None, max_size=_MAX_MESSAGE_BYTES, proxy=None)


async def _send(socket: ClientConnection, message: dict[str, Any]) -> None:
    await socket.send(json.dumps(message))


async def _receive(socket: ClientConnection) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(await socket.recv())
    return message
