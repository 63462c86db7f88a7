"""A client of the WebRTC door: an RTCPeerConnection that keeps what it hears and what it is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import httpx2
import numpy as np
import numpy.typing as npt
from aiortc import RTCBundlePolicy, RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError, MediaStreamTrack
from av import AudioFrame

from relay.webrtc import seams
from tests.conftest import DEADLINE_S

RATE = 48_000
LOUD = 0.02
"""Of full scale, as the peak of 20 ms; silence stays far below it in Opus as well."""
NO_SERVERS = RTCConfiguration(iceServers=[], bundlePolicy=RTCBundlePolicy.MAX_BUNDLE)


@dataclass
class Listener:
    """Its connection, its data channel, the frames it has heard with their times, and the messages it was sent."""

    connection: RTCPeerConnection
    channel: Any = None
    frames: list[tuple[int, npt.NDArray[np.int16]]] = field(default_factory=list)
    messages: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)
    told: list[dict[str, Any]] = field(default_factory=list)
    mels: list[bytes] = field(default_factory=list)
    session: str = ""
    etag: str = ""
    links: list[str] = field(default_factory=list)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def say(self, **message: object) -> None:
        self.channel.send(json.dumps(message))

    def open(self, voice: UUID | str, context: str = "c", **more: object) -> None:
        self.say(type="open", context=context, voice=str(voice), **more)

    async def until(self, kind: str, context: str | None = None) -> dict[str, Any]:
        """The next message of this type; fails at an error that nobody waits for."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                message = await self.messages.get()
                if message["type"] == kind and (context is None or message.get("context") == context):
                    return dict(message)
                assert message["type"] != "error", message

    async def until_connected(self) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while self.connection.connectionState != "connected":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            while self.channel is not None and self.channel.readyState != "open":  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def until_gone(self) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while self.connection.connectionState not in ("closed", "failed"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    def sound(self) -> npt.NDArray[np.float64]:
        """All that was heard, one channel, -1 to 1."""
        if not self.frames:
            return np.zeros(0)
        return np.concatenate([samples[0] for _, samples in self.frames]) / 32768

    def loud(self) -> npt.NDArray[np.bool_]:
        """Which of the frames of 20 ms are no silence."""
        sound = self.sound()
        return np.asarray(np.abs(sound[: len(sound) // 960 * 960].reshape(-1, 960)).max(axis=1) > LOUD)

    def loud_s(self) -> float:
        """From the first loud frame to the last."""
        (found,) = np.nonzero(self.loud())
        return 0.0 if not len(found) else float(found[-1] - found[0] + 1) * 0.02

    def _hear(self, track: MediaStreamTrack) -> None:
        task = asyncio.create_task(self._listen(track))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _listen(self, track: MediaStreamTrack) -> None:
        try:
            while True:
                frame = await track.recv()
                assert isinstance(frame, AudioFrame)
                self.frames.append((frame.pts or 0, frame.to_ndarray().reshape(-1, 2).T))  # type: ignore[arg-type]
        except MediaStreamError:
            return

    def _read(self, message: str | bytes) -> None:
        if isinstance(message, bytes):
            self.mels.append(message)
        else:
            read = json.loads(message)
            self.told.append(read)
            self.messages.put_nowait(read)


def make_listener(
    *, channel: bool = True, microphone: MediaStreamTrack | None = None, configuration: RTCConfiguration = NO_SERVERS
) -> Listener:
    """One that is not connected yet."""
    seams.offer_loopback()
    listener = Listener(RTCPeerConnection(configuration))
    listener.connection.on("track", listener._hear)
    if microphone is None:
        listener.connection.addTransceiver("audio", direction="recvonly")
    else:
        listener.connection.addTrack(microphone)
    if channel:
        listener.channel = listener.connection.createDataChannel("timbrelay")
        listener.channel.on("message", listener._read)
    return listener


async def make_offer(listener: Listener) -> str:
    """Its offer, with its candidates."""
    await listener.connection.setLocalDescription(await listener.connection.createOffer())
    return listener.connection.localDescription.sdp


@asynccontextmanager
async def connect_whep(
    http: httpx2.AsyncClient,
    *,
    channel: bool = True,
    microphone: MediaStreamTrack | None = None,
    configuration: RTCConfiguration = NO_SERVERS,
    **query: Any,
) -> AsyncIterator[Listener]:
    """A listener that the relay has answered over WHEP."""
    listener = make_listener(channel=channel, microphone=microphone, configuration=configuration)
    try:
        offer = await make_offer(listener)
        query = {name: str(value) for name, value in query.items()}
        answer = await http.post("/v1/whep", params=query, content=offer, headers={"Content-Type": "application/sdp"})
        assert answer.status_code == 201, answer.text
        listener.session, listener.etag = answer.headers["location"], answer.headers["etag"]
        listener.links = answer.headers.get_list("link")
        await listener.connection.setRemoteDescription(RTCSessionDescription(answer.text, "answer"))
        yield listener
    finally:
        await listener.connection.close()
        for task in listener.tasks:
            task.cancel()
