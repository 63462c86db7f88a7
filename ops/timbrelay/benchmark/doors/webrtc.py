"""The door of WebRTC, heard at the packet: what a receiver's own jitter buffer adds is the listener's affair."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

import httpx2
import numpy as np

from timbrelay.benchmark.doors.door import DEADLINE_S, DoorFault, Site, Speak

if TYPE_CHECKING:
    from aiortc import RTCDataChannel, RTCPeerConnection

LOUD = 300
"""Of 32,768; silence that was encoded and decoded again stays far below."""
_QUIET_S = 0.3
_STEP_S = 0.02


class _Ear:
    """Decodes each packet as it comes, and remembers when something was heard."""

    def __init__(self) -> None:
        from av import CodecContext

        self._codec: Any = CodecContext.create("libopus", "r")
        self.first_at = 0.0
        self.last_at = 0.0

    def listen_anew(self) -> None:
        self.first_at = self.last_at = 0.0

    def hear(self, payload: bytes) -> None:
        """An RTP packet's payload: one Opus packet (RFC 7587, section 4.2)."""
        from av import Packet

        now = time.perf_counter()
        for frame in self._codec.decode(Packet(payload)):
            if np.abs(frame.to_ndarray().astype(np.float64)).max(initial=0.0) * _scale(frame.format.name) > LOUD:
                self.first_at = self.first_at or now
                self.last_at = now

    @property
    def is_over(self) -> bool:
        """Whether something was heard, and then nothing for a while."""
        return bool(self.first_at) and time.perf_counter() - self.last_at > _QUIET_S


def _scale(sample_format: str) -> float:
    return 32768.0 if sample_format.startswith("flt") else 1.0


@asynccontextmanager
async def open_webrtc(site: Site) -> AsyncIterator[Speak]:
    """WHEP, with texts over the data channel; the context is open before its text is sent."""
    from aiortc import RTCPeerConnection

    connection, ear = RTCPeerConnection(), _Ear()
    connection.addTransceiver("audio", direction="recvonly")
    channel = connection.createDataChannel("timbrelay")
    ready, messages = asyncio.Event(), asyncio.Queue[dict[str, Any]](1024)
    channel.on("open", ready.set)
    channel.on("message", lambda message: _take(messages, message))
    headers = {"Authorization": f"Bearer {site.key}"}
    try:
        async with httpx2.AsyncClient(base_url=site.url, headers=headers, trust_env=False) as client:
            session = await _connect(client, connection, ear)
            async with asyncio.timeout(DEADLINE_S):
                await ready.wait()
            numbers = count()

            async def speak(text: str) -> float:
                context = f"c{next(numbers)}"
                _say(channel, type="open", context=context, voice=site.voice)
                async with asyncio.timeout(DEADLINE_S):
                    while (message := await messages.get())["type"] != "opened":
                        if message["type"] == "error":
                            raise DoorFault("WebRTC", str(message))
                    ear.listen_anew()
                    sent_at = time.perf_counter()
                    _say(channel, type="text", context=context, text=text)
                    _say(channel, type="end", context=context)
                    # Packets come all the time; nobody says which was the last that was loud.
                    while not ear.is_over:  # noqa: ASYNC110
                        await asyncio.sleep(_STEP_S)
                return ear.first_at - sent_at

            yield speak
            await client.delete(session)
    finally:
        await connection.close()


async def _connect(client: httpx2.AsyncClient, connection: RTCPeerConnection, ear: _Ear) -> str:
    """The session's address, once the relay has answered the offer."""
    from aiortc import RTCSessionDescription

    await connection.setLocalDescription(await connection.createOffer())
    offer = connection.localDescription.sdp
    answer = await client.post("/v1/whep", content=offer, headers={"Content-Type": "application/sdp"})
    if answer.status_code != httpx2.codes.CREATED:
        raise DoorFault("WebRTC", answer.text)
    receiver: Any = connection.getReceivers()[0]
    handle = receiver._handle_rtp_packet

    async def listen(packet: Any, arrival_time_ms: int) -> None:
        ear.hear(packet.payload)
        await handle(packet, arrival_time_ms)

    receiver._handle_rtp_packet = listen
    await connection.setRemoteDescription(RTCSessionDescription(answer.text, "answer"))
    return str(answer.headers["Location"])


def _say(channel: RTCDataChannel, **message: str) -> None:
    channel.send(json.dumps(message))


def _take(messages: asyncio.Queue[dict[str, Any]], message: str | bytes) -> None:
    if isinstance(message, str):
        read = json.loads(message)
        if read["type"] in ("opened", "error") and not messages.full():
            messages.put_nowait(read)
