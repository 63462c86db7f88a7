"""The sound of one peer as aiortc wants it: a packet of 20 ms whenever one is due, for as long as the peer is there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiortc import MediaStreamTrack
from aiortc.mediastreams import MediaStreamError
from av import Packet
from av.stream import Stream

from relay.clock import Clock
from relay.webrtc.bitrate import Quality
from relay.webrtc.floor import Floor, Played, Playing
from relay.webrtc.opus import TIME_BASE, OpusEncoder
from relay.webrtc.pacing import FRAME_SAMPLES, Pace


class SpeechTrack(MediaStreamTrack):
    """What the floor gives, as ready-made Opus packets: aiortc then only sends them."""

    kind = "audio"

    def __init__(self, floor: Floor, clock: Clock, announce: Callable[[Playing | Played], None]) -> None:
        super().__init__()
        self.encoder = OpusEncoder(Quality())
        self._floor = floor
        self._clock = clock
        self._announce = announce
        self._pace = Pace()

    async def recv(self) -> Packet[Stream]:
        """The packet of the next slot, when it is due; raises MediaStreamError once the track has stopped."""
        if self.readyState != "live":
            raise MediaStreamError
        slot = self._pace.take(self._clock.monotonic())
        await asyncio.sleep(max(0.0, slot.due_at - self._clock.monotonic()))
        turn = self._floor.take()
        for note in turn.notes:
            self._announce(note)
        packet: Packet[Stream] = Packet(self.encoder.encode(turn.pcm))
        packet.pts, packet.dts, packet.duration, packet.time_base = slot.pts, slot.pts, FRAME_SAMPLES, TIME_BASE
        return packet
