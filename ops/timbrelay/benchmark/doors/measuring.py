"""Every door in turn, again and again: how late the first sound is, and what the relay computes for a chunk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from timbrelay.benchmark import resources
from timbrelay.benchmark.doors.door import DEADLINE_S, Door, Site
from timbrelay.benchmark.doors.requests import (
    ask_cartesia,
    ask_elevenlabs,
    ask_openai,
    ask_openai_events,
    opens,
)
from timbrelay.benchmark.doors.sockets import open_cartesia, open_elevenlabs, open_native
from timbrelay.benchmark.doors.webrtc import open_webrtc

NATIVE = "native WebSocket"
WEBRTC = "WebRTC (first loud packet)"
DOORS = (
    Door(NATIVE, open_native),
    Door("ElevenLabs multi-stream-input", open_elevenlabs),
    Door("ElevenLabs HTTP stream", opens(ask_elevenlabs)),
    Door("OpenAI speech", opens(ask_openai)),
    Door("OpenAI speech, events", opens(ask_openai_events)),
    Door("Cartesia websocket", open_cartesia),
    Door("Cartesia bytes", opens(ask_cartesia)),
    Door(WEBRTC, open_webrtc),
)
TEXTS = (
    "Good morning, I hope that you slept well.",
    "Your order has left our warehouse today.",
    "Of course, I can help you with that.",
    "The meeting was moved to half past nine.",
    "Thank you for calling, and have a nice day.",
)
SOCKETS = 200
"""As many connections are held open that say nothing."""
_CHUNKS = "timbrelay_chunks_sent_total"
_IDLE_S = 2.0
_REST_S = 0.1
_MIB = 2**20


@dataclass(slots=True)
class DoorFigures:
    """One door over all rounds."""

    name: str
    first_audio_s: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    chunks: float = 0.0

    def median_ms(self) -> float:
        """Half of the first sounds came sooner."""
        return 1000 * sorted(self.first_audio_s)[len(self.first_audio_s) // 2]

    def high_ms(self) -> float:
        """Nineteen of twenty came sooner: the nearest rank."""
        return 1000 * sorted(self.first_audio_s)[min(len(self.first_audio_s) - 1, 19 * len(self.first_audio_s) // 20)]

    def cpu_ms_per_chunk(self) -> float | None:
        """What the relay computed; None where the machine does not tell."""
        return 1000 * self.cpu_s / self.chunks if self.cpu_s and self.chunks else None

    def as_dict(self, native_ms: float) -> dict[str, Any]:
        """For the file of figures."""
        cpu = self.cpu_ms_per_chunk()
        return {
            "door": self.name,
            "utterances": len(self.first_audio_s),
            "first_audio_p50_ms": round(self.median_ms(), 1),
            "first_audio_p95_ms": round(self.high_ms(), 1),
            "over_native_ms": round(self.median_ms() - native_ms, 1),
            "relay_cpu_ms_per_chunk": None if cpu is None else round(cpu, 3),
        }


@dataclass(frozen=True, slots=True)
class Rounds:
    """How often each door is opened, and how many texts it is given then."""

    rounds: int = 4
    texts: int = 5


@dataclass(frozen=True, slots=True)
class Relay:
    """What is known of the process that is measured."""

    pids: Mapping[str, int]
    metrics_url: str

    def cpu_s(self) -> float:
        """What it has computed so far; 0 where the machine does not tell."""
        usage = resources.take_snapshot(self.pids, 0).usages.get("relay")
        return usage.cpu_s if usage else 0.0

    def memory_mb(self) -> float:
        """What it holds resident."""
        usage = resources.take_snapshot(self.pids, 0).usages.get("relay")
        return usage.rss_bytes / _MIB if usage else 0.0

    async def chunks(self) -> float:
        """How many it has sent so far."""
        async with httpx2.AsyncClient(timeout=DEADLINE_S, trust_env=False) as client:
            shown = (await client.get(f"{self.metrics_url}/metrics")).text
        samples = (sample for family in text_string_to_metric_families(shown) for sample in family.samples)
        return sum(sample.value for sample in samples if sample.name == _CHUNKS)


async def measure_doors(site: Site, relay: Relay, plan: Rounds, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """The figures of every door; in one run, door after door, so that what else the machine does meets all alike."""
    idle = await _measure_idle(relay)
    figures = {door.name: DoorFigures(door.name) for door in DOORS}
    for number in range(plan.rounds):
        for door in DOORS:
            tell(f"{door.name}, round {number + 1} of {plan.rounds}")
            await _take_round(door, site, relay, plan.texts, figures[door.name], idle)
    native_ms = figures[NATIVE].median_ms()
    return [one.as_dict(native_ms) for one in figures.values()]


async def measure_idle_sockets(site: Site, relay: Relay) -> dict[str, float]:
    """What connections cost in memory that say nothing."""
    before = relay.memory_mb()
    async with AsyncExitStack() as stack:
        for _ in range(SOCKETS):
            await stack.enter_async_context(open_native(site))
        await asyncio.sleep(_IDLE_S)
        held = relay.memory_mb()
    return {"sockets": SOCKETS, "relay_mb": round(before, 1), "added_mb": round(held - before, 1)}


async def _measure_idle(relay: Relay) -> float:
    """What the relay computes in a second while nobody speaks."""
    before = relay.cpu_s()
    await asyncio.sleep(_IDLE_S)
    return (relay.cpu_s() - before) / _IDLE_S


async def _take_round(door: Door, site: Site, relay: Relay, texts: int, figures: DoorFigures, idle: float) -> None:
    loop = asyncio.get_running_loop()
    async with door.open(site) as speak:
        await speak(TEXTS[-1])
        cpu_s, chunks, began = relay.cpu_s(), await relay.chunks(), loop.time()
        for number in range(texts):
            figures.first_audio_s.append(await speak(_choose(TEXTS, number)))
            await asyncio.sleep(_REST_S)
        figures.cpu_s += max(relay.cpu_s() - cpu_s - idle * (loop.time() - began), 0.0)
        figures.chunks += await relay.chunks() - chunks


def _choose(texts: Sequence[str], number: int) -> str:
    return texts[number % len(texts)]
