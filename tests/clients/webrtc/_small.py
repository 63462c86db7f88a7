"""A client as Pipecat's SmallWebRTC transport has it in browsers, on aiortc: the same calls, tracks and messages."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import aioice.ice
import httpx
import numpy as np
from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import AudioStreamTrack, MediaStreamError, MediaStreamTrack
from pipecat.transports.smallwebrtc.connection import SIGNALLING_TYPE

RATE = 48_000
WITHIN_S = 20.0
_PING_S = 1.0


def meet_on_loopback() -> None:
    """aioice offers no 127.0.0.1; on a machine without a network there would be nowhere to meet."""
    hosts = aioice.ice.get_host_addresses
    aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: [*hosts(use_ipv4, use_ipv6), "127.0.0.1"]


@dataclass
class SmallClient:
    """Connect with `connect`; what comes is in `said` and `heard`."""

    http: httpx.AsyncClient
    offers: str = "/api/offer"
    pings: bool = True
    said: list[dict[str, Any]] = field(default_factory=list)
    """The text messages of the data channel."""
    heard: list[np.ndarray] = field(default_factory=list)
    """What the track has played, 20 ms each, float32."""
    pc_id: str = ""

    def __post_init__(self) -> None:
        self.connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self.connection.addTransceiver(AudioStreamTrack(), direction="sendrecv")
        for _ in ("camera", "screen"):
            self.connection.addTransceiver("video", direction="sendrecv")
        self.channel = self.connection.createDataChannel("chat", ordered=True)
        self.channel.on("message", self._note)
        self.connection.on("track", self._listen)
        self._tasks: set[asyncio.Task[None]] = set()

    async def offer(self, **more: Any) -> httpx.Response:
        """POST an offer with all that this machine can be reached at."""
        await self.connection.setLocalDescription(await self.connection.createOffer())
        return await self.post(self.connection.localDescription.sdp, **more)

    async def post(self, sdp: str, **more: Any) -> httpx.Response:
        """POST an offer."""
        known = {"pc_id": self.pc_id} if self.pc_id else {}
        return await self.http.post(self.offers, json={"sdp": sdp, "type": "offer", **known, **more})

    async def take(self, answer: httpx.Response) -> None:
        """Let the answer hold."""
        assert answer.status_code == 200, answer.text
        body = answer.json()
        self.pc_id = body["pc_id"]
        await self.connection.setRemoteDescription(RTCSessionDescription(body["sdp"], body["type"]))

    async def connect(self, **more: Any) -> None:
        """Offer, take the answer, and wait until the data channel is open."""
        await self.take(await self.offer(**more))
        await self.until(lambda: self.channel.readyState == "open")
        # What every client of Pipecat says first; it is for bots, and no error here.
        self.send(label="rtvi-ai", type="client-ready", id="1", data={"version": "1.0.0"})
        if self.pings:
            self._spawn(self._ping())

    def send(self, **message: Any) -> None:
        """A message over the data channel."""
        self.channel.send(json.dumps(message))

    def signal(self, **message: Any) -> None:
        """A message about the connection itself."""
        self.send(type=SIGNALLING_TYPE, message=message)

    def messages(self, kind: str) -> list[dict[str, Any]]:
        """Those that came of this type."""
        return [message for message in self.said if message.get("type") == kind]

    @property
    def sound(self) -> np.ndarray:
        """What was heard, without the silence before and after it."""
        samples = np.concatenate([np.zeros(1, np.float32), *self.heard])
        loud = np.flatnonzero(np.abs(samples) > 0.01)
        return samples[loud[0] : loud[-1] + 1] if len(loud) else samples[:0]

    async def until(self, condition: Callable[[], object]) -> None:
        """Returns when it holds; raises TimeoutError."""
        async with asyncio.timeout(WITHIN_S):
            while not condition():  # noqa: ASYNC110 - aiortc tells by callbacks of many kinds
                await asyncio.sleep(0.01)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self.connection.close()

    def _note(self, message: str | bytes) -> None:
        if isinstance(message, str):
            self.said.append(json.loads(message))

    def _listen(self, track: MediaStreamTrack) -> None:
        if track.kind == "audio":
            self._spawn(self._record(track))

    async def _record(self, track: MediaStreamTrack) -> None:
        with contextlib.suppress(MediaStreamError):
            while True:
                frame: Any = await track.recv()
                samples = frame.to_ndarray().reshape(-1, len(frame.layout.channels))
                assert frame.sample_rate == RATE
                self.heard.append(samples[:, 0].astype(np.float32) / 32768)

    async def _ping(self) -> None:
        while self.channel.readyState == "open":
            self.channel.send(f"ping: {int(1000 * time.time())}")
            await asyncio.sleep(_PING_S)

    def _spawn(self, work: Any) -> None:
        self._tasks.add(asyncio.create_task(work))


@contextlib.asynccontextmanager
async def make_client(address: str, key: str | None, **more: Any) -> AsyncIterator[SmallClient]:
    """A client of this relay; without a key it has to have a session."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with httpx.AsyncClient(base_url=address, headers=headers, timeout=WITHIN_S) as http:
        client = SmallClient(http, **more)
        try:
            yield client
        finally:
            await client.close()
