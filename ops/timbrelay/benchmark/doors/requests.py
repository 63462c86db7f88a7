"""The doors that are HTTP requests, over a connection that is kept: key, voice and text come with each."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2

from timbrelay.benchmark.doors.door import DEADLINE_S, DoorFault, Site, Speak


@dataclass(frozen=True, slots=True)
class Asking:
    """A request for speech in a vendor's words."""

    name: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


Ask = Callable[[Site, str], Asking]


def ask_elevenlabs(site: Site, text: str) -> Asking:
    """`/stream` with PCM."""
    path = f"/elevenlabs/v1/text-to-speech/{site.voice}/stream?output_format=pcm_24000"
    return Asking("ElevenLabs", path, {"xi-api-key": site.key}, {"text": text, "model_id": "eleven_flash_v2_5"})


def ask_openai(site: Site, text: str) -> Asking:
    """`/v1/audio/speech` with PCM."""
    body = {"model": "tts-1", "input": text, "voice": site.voice, "response_format": "pcm"}
    return Asking("OpenAI", "/openai/v1/audio/speech", {"Authorization": f"Bearer {site.key}"}, body)


def ask_openai_events(site: Site, text: str) -> Asking:
    """The same as server-sent events."""
    asking = ask_openai(site, text)
    return Asking(asking.name, asking.path, asking.headers, {**asking.body, "stream_format": "sse"})


def ask_cartesia(site: Site, text: str) -> Asking:
    """`/tts/bytes` with PCM."""
    body = {
        "model_id": "sonic-2",
        "transcript": text,
        "voice": {"mode": "id", "id": site.voice},
        "output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24000},
        "language": "en",
    }
    return Asking("Cartesia", "/cartesia/tts/bytes", {"X-API-Key": site.key}, body)


def opens(ask: Ask) -> Callable[[Site], AbstractAsyncContextManager[Speak]]:
    """A door of such requests."""

    @asynccontextmanager
    async def open_door(site: Site) -> AsyncIterator[Speak]:
        async with httpx2.AsyncClient(base_url=site.url, timeout=DEADLINE_S, trust_env=False) as client:

            async def speak(text: str) -> float:
                asking = ask(site, text)
                sent_at, first = time.perf_counter(), 0.0
                async with client.stream("POST", asking.path, headers=asking.headers, json=asking.body) as answer:
                    if answer.is_error:
                        raise DoorFault(asking.name, (await answer.aread()).decode(errors="replace"))
                    async for piece in answer.aiter_raw():
                        if piece and not first:
                            first = time.perf_counter() - sent_at
                return first

            yield speak

    return open_door
