"""What each door makes of a text, piece by piece as it came: audio in a format that is asked for, words, errors."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from relay.native.frames import HEADER, MEL
from tests.system.doors import DEADLINE_S, Ask

Message = dict[str, Any]
Word = tuple[str, float, float]
"""As it is spelt, with the seconds at which it begins and ends."""


@dataclass(slots=True)
class Told:
    """All of one context."""

    pieces: list[bytes] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    errors: list[Message] = field(default_factory=list)

    @property
    def audio(self) -> bytes:
        return b"".join(self.pieces)


Voicing = Callable[[Ask, str], Awaitable[Told]]
"""Of a text in a format, by the name that docs/formats.md gives it."""


@asynccontextmanager
async def open_native(ask: Ask) -> AsyncIterator[ClientConnection]:
    """A greeted connection of the native protocol."""
    async with _reach(ask, "/v1/stream", {"Authorization": f"Bearer {ask.key}"}) as socket:
        await socket.recv()
        yield socket


@asynccontextmanager
async def open_elevenlabs(
    ask: Ask, kind: str = "multi-stream-input", format: str = ""
) -> AsyncIterator[ClientConnection]:
    """A connection of ElevenLabs' dialect."""
    query = f"?output_format={format}" if format else ""
    path = f"/elevenlabs/v1/text-to-speech/{ask.voice}/{kind}{query}"
    async with _reach(ask, path, {"xi-api-key": ask.key}) as socket:
        yield socket


@asynccontextmanager
async def open_cartesia(ask: Ask) -> AsyncIterator[ClientConnection]:
    """A connection of Cartesia's dialect."""
    async with _reach(ask, "/cartesia/tts/websocket", {"X-API-Key": ask.key}) as socket:
        yield socket


async def say(socket: ClientConnection, **message: object) -> None:
    """One message; what a connection that is closed has said before can still be heard."""
    with contextlib.suppress(ConnectionClosed):
        await socket.send(json.dumps(message))


def generate(
    ask: Ask, context: str, text: str, format: str = "pcm_24000", *, more: bool = False, flush: bool = False
) -> Message:
    """Cartesia's message for a piece of text; `more` may follow."""
    rate = int(format.split("_")[1])
    container = "raw" if format.startswith("pcm") else format.split("_")[0]
    sound = {"container": container, "sample_rate": rate} | ({"encoding": "pcm_s16le"} if container == "raw" else {})
    return {
        "transcript": text,
        "voice": {"mode": "id", "id": ask.voice},
        "output_format": sound,
        "add_timestamps": True,
        "context_id": context,
        "continue": more,
        "flush": flush,
    }


async def voice_native(ask: Ask, format: str) -> Told:
    """The native protocol."""
    told = Told()
    async with open_native(ask) as socket:
        await say(socket, type="open", context="c", voice=ask.voice, format=format)
        await say(socket, type="text", context="c", text=ask.text)
        await say(socket, type="end", context="c")
        async for raw in socket:
            if isinstance(raw, bytes):
                if not HEADER.unpack(raw[: HEADER.size])[1] & MEL:
                    told.pieces.append(raw[HEADER.size :])
                continue
            message = json.loads(raw)
            if message["type"] == "words":
                told.words += [(w["text"], w["start_ms"] / 1000, w["end_ms"] / 1000) for w in message["words"]]
            if message["type"] == "error":
                told.errors.append(message)
            if message["type"] in ("done", "error"):
                break
    return told


async def voice_elevenlabs(ask: Ask, format: str) -> Told:
    """ElevenLabs' `multi-stream-input`."""
    async with open_elevenlabs(ask, format=format) as socket:
        for message in ({"text": " "}, {"text": f"{ask.text} ", "flush": True}, {"close_context": True}):
            await say(socket, **message, context_id="c")
        return await _hear_elevenlabs(socket)


async def voice_elevenlabs_once(ask: Ask, format: str) -> Told:
    """ElevenLabs' `stream-input`."""
    async with open_elevenlabs(ask, "stream-input", format) as socket:
        for text in (" ", f"{ask.text} ", ""):
            await say(socket, text=text)
        return await _hear_elevenlabs(socket)


async def voice_cartesia(ask: Ask, format: str) -> Told:
    """Cartesia's WebSocket."""
    told = Told()
    async with open_cartesia(ask) as socket:
        await say(socket, **generate(ask, "c", ask.text, format))
        async for raw in socket:
            _take_cartesia(told, json.loads(raw))
            if told.errors or json.loads(raw)["done"]:
                break
    return told


async def voice_elevenlabs_http(ask: Ask, format: str) -> Told:
    """ElevenLabs' stream with timestamps."""
    path = f"/elevenlabs/v1/text-to-speech/{ask.voice}/stream/with-timestamps?output_format={format}"
    answer = await post(ask, path, {"text": ask.text})
    if answer.is_error:
        return Told(errors=[answer.json()])
    told, chars = Told(), []
    for line in map(json.loads, answer.text.splitlines()):
        told.pieces.append(base64.b64decode(line["audio_base64"]))
        if times := line["alignment"]:
            starts, ends = times["character_start_times_seconds"], times["character_end_times_seconds"]
            chars += list(zip(times["characters"], starts, ends, strict=True))
    told.words = _join(chars)
    return told


async def voice_openai(ask: Ask, format: str) -> Told:
    """OpenAI's speech, which has a rate of its own."""
    kind = format.split("_")[0]
    body = {"model": "tts-1", "input": ask.text, "voice": ask.voice, "response_format": kind}
    answer = await post(ask, "/openai/v1/audio/speech", body)
    return Told(errors=[answer.json()]) if answer.is_error else Told([answer.content])


async def voice_cartesia_bytes(ask: Ask, format: str) -> Told:
    """Cartesia's bytes."""
    answer = await post(ask, "/cartesia/tts/bytes", generate(ask, "c", ask.text, format))
    return Told(errors=[answer.json()]) if answer.is_error else Told([answer.content])


async def voice_cartesia_events(ask: Ask, format: str) -> Told:
    """Cartesia's server-sent events."""
    answer = await post(ask, "/cartesia/tts/sse", generate(ask, "c", ask.text, format))
    if answer.is_error:
        return Told(errors=[answer.json()])
    told = Told()
    for line in answer.text.splitlines():
        if line.startswith("data: "):
            _take_cartesia(told, json.loads(line[6:]))
    return told


SOCKETS: Mapping[str, Voicing] = {
    "native": voice_native,
    "elevenlabs multi": voice_elevenlabs,
    "elevenlabs single": voice_elevenlabs_once,
    "cartesia": voice_cartesia,
}
TIMED: Mapping[str, Voicing] = {
    **SOCKETS,
    "elevenlabs http": voice_elevenlabs_http,
    "cartesia events": voice_cartesia_events,
}
"""The doors that say when each word is heard."""
VOICINGS: Mapping[str, Voicing] = {**TIMED, "openai": voice_openai, "cartesia bytes": voice_cartesia_bytes}


async def post(ask: Ask, path: str, body: Message) -> httpx2.Response:
    """A request with the key in every dialect's header."""
    headers = {"Authorization": f"Bearer {ask.key}", "xi-api-key": ask.key}
    async with httpx2.AsyncClient(base_url=ask.url, timeout=DEADLINE_S, trust_env=False) as client:
        return await client.post(path, headers=headers, json=body)


async def _hear_elevenlabs(socket: ClientConnection) -> Told:
    told, chars, clock = Told(), [], 0.0
    async for raw in socket:
        message = json.loads(raw)
        if message.get("error"):
            told.errors.append(message)
            break
        if message.get("audio"):
            told.pieces.append(base64.b64decode(message["audio"]))
        if times := message.get("alignment"):
            for char, start, length in zip(
                times["chars"], times["charStartTimesMs"], times["charDurationsMs"], strict=True
            ):
                chars.append((char, clock + start / 1000, clock + (start + length) / 1000))
            clock = chars[-1][2]
        if message.get("isFinal"):
            break
    told.words = _join(chars)
    return told


def _take_cartesia(told: Told, message: Message) -> None:
    match message["type"]:
        case "error":
            told.errors.append(message)
        case "chunk":
            told.pieces.append(base64.b64decode(message["data"]))
        case "timestamps":
            times = message["word_timestamps"]
            told.words += zip(times["words"], times["start"], times["end"], strict=True)


def _join(chars: list[tuple[str, float, float]]) -> list[Word]:
    """Characters as the words between their spaces."""
    words: list[Word] = []
    fresh = True
    for char, start, end in chars:
        if char.isspace():
            fresh = True
        elif fresh:
            words.append((char, start, end))
            fresh = False
        else:
            words[-1] = (words[-1][0] + char, words[-1][1], end)
    return words


@asynccontextmanager
async def _reach(ask: Ask, path: str, headers: dict[str, str]) -> AsyncIterator[ClientConnection]:
    async with connect("ws" + ask.url.removeprefix("http") + path, additional_headers=headers, proxy=None) as socket:
        yield socket
