"""One RTCPeerConnection of aiortc: offers in, answers out, and what happens on it handed to its peer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import structlog
from aiortc import (
    RTCBundlePolicy,
    RTCConfiguration,
    RTCDataChannel,
    RTCIceServer,
    RTCIceTransportPolicy,
    RTCPeerConnection,
    RTCRtpSender,
    RTCSessionDescription,
)
from aiortc.mediastreams import MediaStreamError, MediaStreamTrack
from aiortc.sdp import candidate_from_sdp
from av import AudioFrame

from relay.errors import InvalidRequest
from relay.webrtc import metrics, seams
from relay.webrtc.ice_servers import IceServer
from relay.webrtc.offers import MAX_CANDIDATES, advertise, read_offer
from relay.webrtc.terms import WebrtcTerms
from relay.webrtc.track import SpeechTrack
from relay.webrtc.trickle import Trickled

log = structlog.get_logger()

CLOSE_WITHIN_S = 3.0
_UFRAG = "a=ice-ufrag:"
_CONNECTED, _GONE = "connected", frozenset({"failed", "closed"})


class Owner(Protocol):
    """Whom a link tells what happens; nothing here may wait."""

    def connected(self) -> None:
        """Media flows."""

    def disconnected(self, *, failed: bool) -> None:
        """It does not any more."""

    def opened(self, channel: RTCDataChannel) -> None:
        """The client has opened a data channel."""

    def said(self, message: str | bytes) -> None:
        """A message came over one."""

    def heard(self, samples: npt.NDArray[np.int16], pts: int) -> None:
        """20 ms of the microphone at 48 kHz, int16 [channels, samples], while `listen` is on."""


class Link:
    """The connection of one peer; made for an offer, closed once."""

    def __init__(self, terms: WebrtcTerms, servers: Sequence[IceServer], track: SpeechTrack, owner: Owner) -> None:
        self._terms = terms
        self._owner = owner
        self._candidates = 0
        self._ufrags: set[str] = set()
        self._draining: set[asyncio.Task[None]] = set()
        self._reported: object = None
        if terms.loopback:
            seams.offer_loopback()
        seams.shorten_datagrams()
        self._connection = RTCPeerConnection(_configure(terms, servers))
        self._sender = self._connection.addTrack(track)
        (self._ours,) = self._connection.getTransceivers()
        opus = [c for c in RTCRtpSender.getCapabilities("audio").codecs if c.mimeType == "audio/opus"]
        self._ours.setCodecPreferences(opus)
        self._connection.on("connectionstatechange", self._note_state)
        self._connection.on("datachannel", self._note_channel)
        self._connection.on("track", self._note_track)

    @property
    def has_microphone(self) -> bool:
        """Whether the client sends audio."""
        return self._ours.currentDirection in ("sendrecv", "recvonly")

    async def answer(self, offer: str) -> str:
        """The answer, with all candidates of ours; raises InvalidRequest for an offer that leads to none."""
        taken = read_offer(offer)
        self._candidates = taken.count("a=candidate:")
        try:
            await self._connection.setRemoteDescription(RTCSessionDescription(taken, "offer"))
            for transceiver in self._connection.getTransceivers():
                # One voice, one microphone: no video, no second track, no simulcast.
                transceiver.direction = "sendrecv" if transceiver is self._ours else "inactive"
            seams.cap_gathering(self._connection)
            await self._connection.setLocalDescription()
        except Exception as error:
            # aiortc's parser raises whatever it stumbles on, over text that the client chose.
            log.info("an offer could not be answered", reason=type(error).__name__)
            raise InvalidRequest("the offer cannot be answered: it is no offer of WebRTC audio", field="sdp") from error
        # As they came: aiortc would write the description anew, and fall over what it has only read.
        self._ufrags = {line.removeprefix(_UFRAG).strip() for line in taken.splitlines() if line.startswith(_UFRAG)}
        return advertise(self._connection.localDescription.sdp, self._terms.address)

    def knows(self, ufrag: str) -> bool:
        """Whether the ICE session of the client goes by this name."""
        return ufrag in self._ufrags

    async def trickle(self, candidates: Sequence[Trickled], *, complete: bool) -> None:
        """Try these as well, as far as there are not too many; raises InvalidRequest."""
        for trickled in candidates[: MAX_CANDIDATES - self._candidates]:
            self._candidates += 1
            try:
                candidate = candidate_from_sdp(trickled.candidate.removeprefix("candidate:"))
                candidate.sdpMid, candidate.sdpMLineIndex = trickled.mid, trickled.index
                await self._connection.addIceCandidate(candidate)
            except (ValueError, AssertionError) as error:
                raise InvalidRequest("a candidate cannot be read (RFC 8839)", field="candidate") from error
        if complete:
            await self._connection.addIceCandidate(None)

    def listen(self, *, on: bool) -> None:
        """Whether the microphone is heard."""
        seams.listen(self._ours.receiver, on=on)

    async def lost(self) -> float | None:
        """The share of packets that the client's last report misses (RFC 3550, section 6.4.1); each report once."""
        for stats in (await self._sender.getStats()).values():
            if stats.type == "remote-inbound-rtp" and stats.timestamp != self._reported:
                self._reported = stats.timestamp
                return float(stats.fractionLost) / 256
        return None

    async def close(self) -> None:
        """End it, in order if that takes no more than three seconds."""
        try:
            async with asyncio.timeout(CLOSE_WITHIN_S):
                await self._connection.close()
        except TimeoutError:
            metrics.CLOSE_TIMEOUTS.inc()
            log.warning("a WebRTC connection could not be closed in time")
        except Exception as error:
            # What an offer has left half made; whatever is ours is ended all the same.
            log.warning("a WebRTC connection was not closed in order", reason=type(error).__name__)
        for task in self._draining:
            task.cancel()
        await asyncio.gather(*self._draining, return_exceptions=True)

    def _note_state(self) -> None:
        state = self._connection.connectionState
        if state == _CONNECTED:
            self._owner.connected()
        elif state in _GONE:
            self._owner.disconnected(failed=state == "failed")

    def _note_channel(self, channel: RTCDataChannel) -> None:
        channel.on("message", self._owner.said)
        self._owner.opened(channel)

    def _note_track(self, track: MediaStreamTrack) -> None:
        if track is not self._ours.receiver.track:
            return
        seams.set_jitter_target(self._ours.receiver)
        self.listen(on=False)
        # For as long as it lives: what is decoded and not read would pile up.
        task = asyncio.create_task(self._drain(track))
        self._draining.add(task)
        task.add_done_callback(self._draining.discard)

    async def _drain(self, track: MediaStreamTrack) -> None:
        try:
            while True:
                frame = await track.recv()
                if isinstance(frame, AudioFrame):
                    samples = frame.to_ndarray().astype(np.int16, copy=False).reshape(-1, len(frame.layout.channels)).T
                    self._owner.heard(samples, frame.pts or 0)
        except MediaStreamError:
            return


def _configure(terms: WebrtcTerms, servers: Sequence[IceServer]) -> RTCConfiguration:
    """Without a list of servers aiortc would ask a public one."""
    used = [] if terms.candidates == "host" else servers
    relayed = terms.candidates == "relay"
    return RTCConfiguration(
        iceServers=[RTCIceServer(list(s.urls), s.username, s.credential) for s in used],
        iceTransportPolicy=RTCIceTransportPolicy.RELAY if relayed else RTCIceTransportPolicy.ALL,
        bundlePolicy=RTCBundlePolicy.MAX_BUNDLE,
    )
