"""Clients that do not read, do not write, or are gone: nobody is waited for longer than the settings say."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from tests.conftest import DEADLINE_S
from tests.system.conftest import LONG_SENTENCE
from tests.system.fuzzing.conftest import Scene
from tests.system.fuzzing.guests import GUESTS, Guest, begin
from tests.system.fuzzing.sockets import reset, write_raw
from tests.system.fuzzing.vitals import SETTLED_S

LONG_TEXT = f"{LONG_SENTENCE}. " * 8
SLOWEST = {"speed": 0.25}
_RAW = {"container": "raw", "encoding": "pcm_f32le", "sample_rate": 48000}


def _requests(scene: Scene) -> dict[str, tuple[str, dict[str, str], dict[str, Any]]]:
    bearer, voice = {"Authorization": f"Bearer {scene.key}"}, {"mode": "id", "id": scene.voice}
    elevenlabs = f"/elevenlabs/v1/text-to-speech/{scene.voice}"
    cartesia = {"transcript": LONG_TEXT, "voice": voice, "output_format": _RAW}
    openai = {"input": LONG_TEXT, "voice": scene.voice, "response_format": "pcm", **SLOWEST}
    settings = {"text": LONG_TEXT, "voice_settings": SLOWEST}
    return {
        "elevenlabs": (f"{elevenlabs}/stream?output_format=f32_48000", {"xi-api-key": scene.key}, settings),
        "elevenlabs timed": (f"{elevenlabs}/stream/with-timestamps", {"xi-api-key": scene.key}, settings),
        "openai": ("/openai/v1/audio/speech", bearer, openai),
        "openai events": ("/openai/v1/audio/speech", bearer, {**openai, "stream_format": "sse"}),
        "cartesia": ("/cartesia/tts/bytes", {"X-API-Key": scene.key}, cartesia),
        "cartesia events": ("/cartesia/tts/sse", {"X-API-Key": scene.key}, cartesia),
    }


async def _until_it_speaks(connection: ClientConnection) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while isinstance(message := await connection.recv(), str):
            if {"audio", "data"} & {name for name, value in json.loads(message).items() if value}:
                return


@pytest.mark.timeout(120)
async def test_who_does_not_read_is_let_go(scene: Scene) -> None:
    """At every socket and every request at once, with what fills a kernel's buffers; others are served meanwhile."""
    async with contextlib.AsyncExitStack() as life:
        for guest in GUESTS.values():
            connection = await life.enter_async_context(begin(guest, scene))
            connection.transport.pause_reading()
            await connection.send(json.dumps(guest.say(scene, LONG_TEXT)))
        client = await life.enter_async_context(httpx2.AsyncClient(base_url=scene.url, timeout=DEADLINE_S))
        for path, headers, body in _requests(scene).values():
            answer = await life.enter_async_context(client.stream("POST", path, headers=headers, json=body))
            assert answer.status_code == 200
        await scene.vitals.check_doors(scene.expected)
        # One who asks for little may have it in the kernel's buffers; who asks for more is not waited for.
        await scene.vitals.settle(2 * SETTLED_S)


@pytest.mark.timeout(120)
async def test_who_vanishes_without_a_word_is_noticed(scene: Scene) -> None:
    """Half-open connections, in mid-text or before it, with half a message and without: all end by themselves."""
    async with contextlib.AsyncExitStack() as life:
        for guest, talks, half in itertools.product(GUESTS.values(), (False, True), (False, True)):
            connection = await life.enter_async_context(begin(guest, scene))
            if talks:
                await connection.send(json.dumps(guest.say(scene, f"{LONG_SENTENCE}. And then")))
            if half:
                write_raw(connection, b"\x81\xfe\x40\x00only half")
            connection.transport.pause_reading()
        await scene.vitals.settle()


@pytest.mark.timeout(120)
async def test_who_resets_a_connection_costs_nothing_more(scene: Scene) -> None:
    """RST while audio flows, in mid-message and in mid-answer."""
    for _ in range(3):
        async with contextlib.AsyncExitStack() as life:
            for guest in GUESTS.values():
                connection = await life.enter_async_context(begin(guest, scene))
                await connection.send(json.dumps(guest.say(scene, f"{LONG_TEXT} ")))
                await _until_it_speaks(connection)
                write_raw(connection, b"\x81\xfe\x40\x00only half")
                reset(connection)
            for path, headers, body in _requests(scene).values():
                async with (
                    httpx2.AsyncClient(base_url=scene.url, timeout=DEADLINE_S) as client,
                    client.stream("POST", path, headers=headers, json=body) as answer,
                ):
                    async for _ in answer.aiter_raw():
                        break
        await scene.vitals.settle()


ENDLESS = {
    "words": "and so on ",
    "one word": "a",
    "marks": "?! ",
    "tag": "<break ",
    "emoji": "🎉",
    "controls": "\x00\x07",
    "line ends": "\n",
}
PIECE = 9_000
LAST_WORDS_S = 3.0
PIECES = 10_000_000 // PIECE


@pytest.mark.timeout(180)
@pytest.mark.parametrize("guest", GUESTS.values(), ids=GUESTS)
async def test_a_text_without_end_has_an_end(guest: Guest, scene: Scene) -> None:
    """Ten megabytes of it: the context or the connection ends with a reason, long before, and the relay keeps none."""
    before = scene.vitals.resident_bytes()
    told = await asyncio.gather(*(_pour(guest, scene, piece) for piece in ENDLESS.values()))
    errors = dict(zip(ENDLESS, told, strict=True))
    # White space keeps a context alive in one dialect and is passed over in another: nothing of it is kept.
    assert [name for name, codes in errors.items() if not codes and name != "line ends"] == []
    await scene.vitals.settle()
    assert scene.vitals.resident_bytes() - before < 64 * 2**20


async def _pour(guest: Guest, scene: Scene, piece: str) -> list[str]:
    """The codes of the errors that end it."""
    errors: list[str] = []
    message = json.dumps(guest.say(scene, piece * (PIECE // len(piece))), ensure_ascii=False)
    async with begin(guest, scene) as connection:
        listening = asyncio.create_task(_collect(connection, guest, errors))
        with contextlib.suppress(ConnectionClosed):
            for _ in range(PIECES):
                await connection.send(message)
                if errors or listening.done():
                    break
        await asyncio.wait([listening], timeout=LAST_WORDS_S)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    return errors


async def _collect(connection: ClientConnection, guest: Guest, errors: list[str]) -> None:
    with contextlib.suppress(ConnectionClosed):
        while True:
            message = await connection.recv()
            if isinstance(message, str) and (code := guest.find_error(json.loads(message))):
                errors.append(code)
                return


@pytest.mark.parametrize("line", ["Content-Length: 5", "Transfer-Encoding: chunked", f"X-Long: {'x' * 10_000}"])
async def test_what_is_no_handshake_is_refused(line: str, scene: Scene) -> None:
    """One that the server of WebSockets cannot read takes no place for longer than it takes to say so."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(scene.url.rsplit(":", 1)[1]))
    head = "GET /v1/stream HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    writer.write(f"{head}{key}{line}\r\n\r\n".encode())
    async with asyncio.timeout(DEADLINE_S):
        answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 400 ")
