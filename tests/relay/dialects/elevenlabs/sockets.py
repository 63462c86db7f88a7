"""Clients of the running sockets, as plain as the wire."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx2
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.conftest import DEADLINE_S, RunningStack
from tests.relay.dialects.elevenlabs.conftest import Speaking
from tests.system.conftest import LONG_SENTENCE

MULTI, STREAM = "multi-stream-input", "stream-input"
TEXT = "Good morning. This is a short test. "
LONG = f"{LONG_SENTENCE}. " * 10


@asynccontextmanager
async def open_socket(
    stack: RunningStack,
    acme: Speaking,
    socket: str = MULTI,
    *,
    key: str | None = None,
    voice: str = "",
    query: str = "",
) -> AsyncIterator[ClientConnection]:
    """A connection; with an empty `key` no header brings one."""
    key = acme.tenant.key if key is None else key
    url = f"{stack.relay_url.replace('http', 'ws')}/elevenlabs/v1/text-to-speech/{voice or acme.voice}/{socket}"
    headers = {"xi-api-key": key} if key else {}
    query = query or "output_format=pcm_24000"
    async with connect(f"{url}?{query}", additional_headers=headers, max_size=2**24, proxy=None) as connection:
        yield connection


async def say(connection: ClientConnection, **message: Any) -> None:
    await connection.send(json.dumps(message))


async def speak_stream(connection: ClientConnection, text: str, **first: Any) -> None:
    """As the SDK does it; who is sent away meanwhile reads why."""
    with suppress(ConnectionClosed):
        await say(connection, text=" ", voice_settings=None, try_trigger_generation=True, **first)
        await say(connection, text=text, try_trigger_generation=True)
        await say(connection, text="")


async def hear_all(connection: ClientConnection) -> tuple[list[dict[str, Any]], int, str]:
    """Every frame up to the close, its code and its reason."""
    frames: list[dict[str, Any]] = []
    async with asyncio.timeout(DEADLINE_S):
        try:
            while True:
                frames.append(json.loads(await connection.recv()))
        except ConnectionClosed as closed:
            assert closed.rcvd is not None
            return frames, closed.rcvd.code, closed.rcvd.reason


async def hear_final(connection: ClientConnection, context: str | None = None) -> list[dict[str, Any]]:
    """Every frame up to the last one of a context."""
    frames: list[dict[str, Any]] = []
    async with asyncio.timeout(DEADLINE_S):
        while not (frames and frames[-1].get("isFinal") and frames[-1].get("contextId") == context):
            frames.append(json.loads(await connection.recv()))
    return frames


def contexts(stack: RunningStack) -> float:
    lines = httpx2.get(f"{stack.metrics_urls['relay']}/metrics").text.splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("timbrelay_contexts ")))
