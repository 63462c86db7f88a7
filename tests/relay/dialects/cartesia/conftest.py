"""A tenant that asks in the dialect, and clients of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.conftest import DEADLINE_S, RunningStack
from tests.relay.dialects import conftest
from tests.relay.dialects.cartesia.wire import RAW, Frame

Http = httpx2.AsyncClient
TEXT = "Good morning. This is a short test."


@dataclass(frozen=True, slots=True)
class Speaking(conftest.Speaking):
    """A tenant with a voice that is ready."""

    def ask(self, transcript: str, **changed: Any) -> dict[str, Any]:
        """A request for speech in raw samples."""
        wanted = {"model_id": "sonic-3", "transcript": transcript, "voice": {"mode": "id", "id": self.voice}}
        return {**wanted, "output_format": RAW, "language": "en", **changed}


@pytest.fixture
async def acme(acme: conftest.Speaking) -> Speaking:
    """The one of all dialects, with this one's words."""
    return Speaking(acme.tenant, acme.voice)


@pytest.fixture
async def http(stack: RunningStack, acme: Speaking) -> AsyncIterator[Http]:
    """The tenant's client of the dialect."""
    base_url, headers = f"{stack.relay_url}/cartesia", {"X-API-Key": acme.tenant.key}
    async with httpx2.AsyncClient(base_url=base_url, headers=headers, timeout=30) as client:
        yield client


@asynccontextmanager
async def dial(
    stack: RunningStack, key: str | None = None, query: str = "", **more: Any
) -> AsyncIterator[ClientConnection]:
    """A WebSocket, with the key in the header where one is given."""
    url = f"{stack.relay_url.replace('http', 'ws')}/cartesia/tts/websocket{query}"
    headers = {} if key is None else {"X-API-Key": key, "Cartesia-Version": "2026-03-01"}
    async with connect(url, additional_headers=headers, **more) as connection:
        yield connection


async def hear(connection: ClientConnection, *contexts: str) -> list[Frame]:
    """All frames until each of the contexts has ended."""
    frames: list[Frame] = []
    left = set(contexts)
    async with asyncio.timeout(DEADLINE_S):
        while left:
            frames.append(json.loads(await connection.recv()))
            if frames[-1]["type"] in ("done", "error"):
                left.discard(frames[-1]["context_id"])
    return frames


async def say(connection: ClientConnection, asked: dict[str, Any], context: str, **changed: Any) -> None:
    """Send a generation request."""
    await connection.send(json.dumps({**asked, "context_id": context, **changed}))


def find_error(answer: httpx2.Response, status: int, code: str) -> str:
    """The message of an error, after a look at the rest of it."""
    assert answer.status_code == status, answer.text
    error = answer.json()
    assert set(error) == {"error_code", "title", "message", "request_id"}
    assert error["error_code"] == code, error
    assert error["request_id"] == answer.headers["x-request-id"]
    return str(error["message"])
