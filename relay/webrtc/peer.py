"""One WebRTC peer: a link on one side, a conversation on the other, and a floor on which its contexts take turns."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import structlog
from aiortc import RTCDataChannel

from relay.doors.codecs import load_codec_for
from relay.doors.conversation import Conversation
from relay.doors.face import Close
from relay.entrance.visitors import HangUp
from relay.errors import InvalidMessage, Refused, RelayError
from relay.native.face import NativeFace
from relay.native.frames import encode_mel
from relay.speaking.commands import End, Open, Refuse, Text
from relay.speaking.events import Audio, Cancelled, Done, Event, Failed
from relay.webrtc import metrics
from relay.webrtc.bitrate import adapt
from relay.webrtc.enrolment import Enrolment
from relay.webrtc.floor import Floor, Played, Playing
from relay.webrtc.ice_servers import IceServer
from relay.webrtc.life import Ending, Life
from relay.webrtc.link import Link
from relay.webrtc.messages import (
    Goodbye,
    Message,
    Native,
    Ping,
    StartCapture,
    StopCapture,
    read_peer_message,
    show_note,
)
from relay.webrtc.outlet import Outlet
from relay.webrtc.terms import WebrtcTerms
from relay.webrtc.track import SpeechTrack

log = structlog.get_logger()

MAX_WAITING = 256
"""Messages that were said and not followed yet."""
TEXT_CONTEXT = "text"
"""The context of a text that came with the offer."""
_FULL_POLL_S = 0.02
_MEASURE_S = 1.0
_CHANNEL_WITHIN_S = 10.0
_BUSY_MS = 1000
_LAST_WORDS_S = 0.5


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a client said with its offer."""

    voice: str | None = None
    """For contexts that are opened without one."""
    text: str | None = None
    """Spoken as soon as media flows."""


class Peer:
    """`answer` begins it; it ends by itself, for one of the reasons in Ending."""

    def __init__(
        self,
        terms: WebrtcTerms,
        servers: list[IceServer],
        conversation: Conversation,
        floor: Floor,
        enrolment: Enrolment,
        wishes: Wishes,
    ) -> None:
        self._conversation = conversation
        self._clock = conversation.clock
        self._floor = floor
        self._enrolment = enrolment
        self._wishes = wishes
        self._face = NativeFace(conversation.limits.chunk_ms)
        self._outlet = Outlet()
        self._life = Life(self._clock.monotonic(), conversation.limits.idle_timeout_s)
        self._track = SpeechTrack(floor, self._clock, self._announce)
        self._link = Link(terms, servers, self._track, self)
        self._said: asyncio.Queue[Message] = asyncio.Queue(MAX_WAITING)
        self._connected = asyncio.Event()
        self._ending: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._enrolling: asyncio.Task[None] | None = None

    @property
    def link(self) -> Link:
        """For what signalling brings."""
        return self._link

    async def run(self) -> None:
        """Returns when it has ended, and nothing of it is left."""
        ending = Ending.FAULT
        try:
            async with self._conversation:
                ending = await self._live()
        except Exception:
            log.exception("a WebRTC peer broke")
        finally:
            metrics.ENDED.labels(ending.value).inc()
            if self._enrolling is not None:
                self._enrolling.cancel()
                await asyncio.gather(self._enrolling, return_exceptions=True)
            self._enrolment.discard()
            await self._link.close()

    def end(self, ending: Ending) -> None:
        """Let it go."""
        if not self._ending.done():
            self._ending.set_result(ending)

    def hear(self, raw: str) -> None:
        """A message that came another way; raises InvalidMessage, or Refused when too many wait."""
        self._take(read_peer_message(raw, self._wishes.voice))

    def connected(self) -> None:
        """Media flows."""
        self._life.connect(self._clock.monotonic())
        self._connected.set()

    def disconnected(self, *, failed: bool) -> None:
        """It does not any more."""
        self.end(Ending.FAILED if failed else Ending.LEFT)

    def opened(self, channel: RTCDataChannel) -> None:
        """The client has opened a data channel; it is greeted on its first."""
        if not self._outlet.open:
            self._outlet.attach(channel)
            for message in self._face.greet():
                self._outlet.send(message)

    def said(self, message: str | bytes) -> None:
        """A message came over a data channel."""
        try:
            self._take(read_peer_message(message, self._wishes.voice))
        except InvalidMessage as error:
            self._conversation.act(Refuse(None, error))
        except Refused:
            self.end(Ending.FLOODED)

    def heard(self, samples: npt.NDArray[np.int16], pts: int) -> None:
        """The microphone."""
        self._enrolment.add(samples, pts)

    def _take(self, message: Message) -> None:
        now = self._clock.monotonic()
        match message:
            case Ping():
                self._life.ping(now)
            case Goodbye():
                self.end(Ending.LEFT)
            case Native() | StartCapture() | StopCapture():
                self._life.act(now)
                if self._said.full():
                    raise Refused("overloaded", "too many messages wait for their turn", retry_after_ms=_BUSY_MS)
                self._said.put_nowait(message)

    async def _live(self) -> Ending:
        """All parts side by side; the first that ends, ends all."""
        self._conversation.on_tick = self._tick
        steps: list[Coroutine[Any, Any, Ending]] = [self._listen(), self._speak(), self._measure()]
        tasks = [asyncio.create_task(step) for step in steps]
        try:
            waited: set[asyncio.Future[Any]] = {*tasks, self._ending, self._conversation.ending}
            done, _ = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if self._conversation.ending in done:
                return await self._take_leave(self._conversation.ending.result())
            if self._ending in done:
                return self._ending.result()
            return next(task for task in tasks if task in done).result()
        finally:
            self._conversation.on_tick = None
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self) -> Ending:
        await self._connected.wait()
        wishes = self._wishes
        if wishes.text is not None and wishes.voice is not None:
            for command in (Open(TEXT_CONTEXT, wishes.voice), Text(TEXT_CONTEXT, wishes.text), End(TEXT_CONTEXT)):
                if isinstance(command, Open) or self._conversation.session.holds(TEXT_CONTEXT):
                    await self._conversation.follow(command)
        while True:
            message = await self._said.get()
            try:
                await self._follow(message)
            except RelayError as error:
                await self._conversation.follow(Refuse(None, error))

    async def _follow(self, message: Message) -> None:
        match message:
            case Native(raw=raw):
                for command in self._face.hear(raw, self._clock.monotonic()):
                    await load_codec_for(self._face, command)
                    await self._conversation.follow(command)
            case StartCapture():
                if not self._link.has_microphone:
                    text = "the connection carries no microphone: offer the audio track as `sendrecv`, with a track"
                    raise InvalidMessage(text, field="action")
                await self._enrolment.start(message)
                self._link.listen(on=True)
                self._outlet.send(json.dumps({"type": "capturing"}))
            case StopCapture(action="discard"):
                self._link.listen(on=False)
                self._enrolment.discard()
            case StopCapture():
                self._finish_capture()

    def _finish_capture(self) -> None:
        self._link.listen(on=False)
        if self._enrolling is None or self._enrolling.done():
            self._enrolling = asyncio.create_task(self._enrol())

    async def _enrol(self) -> None:
        try:
            self._outlet.send(json.dumps(await self._enrolment.finish()))
        except RelayError as error:
            told = {"type": "error", **error.as_dict(), "context": None, "unspoken": None, "action": "capture"}
            self._outlet.send(json.dumps(told))

    async def _speak(self) -> Ending:
        """Empty the outbox; what is to be heard waits on the floor, from where `forget` takes it back."""
        limit_s = self._conversation.limits.send_timeout_s
        while True:
            while self._floor.full:  # noqa: ASYNC110 - it empties in real time, and nobody tells
                await asyncio.sleep(_FULL_POLL_S)
            try:
                await self._outlet.wait(limit_s)
            except TimeoutError:
                return Ending.UNREAD
            # Nothing may be awaited between the outbox and the floor: a cancel in between would be too late.
            event = await self._conversation.outbox.get()
            if isinstance(event, Close):
                await self._hear_out()
                return await self._take_leave(HangUp(event.code, event.reason))
            self._tell(event)

    def _tell(self, event: Event) -> None:
        for message in self._face.tell(event):
            if isinstance(message, str):
                self._outlet.send(message)
        match event:
            case Audio():
                self._floor.add(event)
                if event.mel:
                    self._outlet.send(encode_mel(event))
            case Done(context=context) | Cancelled(context=context):
                self._floor.end(context)
            case Failed(context=str(context), ended=True):
                self._floor.end(context)

    async def _hear_out(self) -> None:
        """What has been spoken is heard before the relay hangs up; it is no more than the floor holds."""
        while not self._floor.empty:  # noqa: ASYNC110 - as above
            await asyncio.sleep(_FULL_POLL_S)

    async def _take_leave(self, hang_up: HangUp) -> Ending:
        self._outlet.send(json.dumps({"type": "closing", "code": hang_up.code, "reason": str(hang_up)}))
        self._outlet.send(json.dumps({"type": "signalling", "message": {"type": "peerLeft"}}))
        await self._outlet.flush(_LAST_WORDS_S)
        return Ending.HUNG_UP

    async def _measure(self) -> Ending:
        await self._connected.wait()
        while True:
            await asyncio.sleep(_MEASURE_S)
            lost = await self._link.lost()
            if lost is not None:
                metrics.LOSS.set(lost)
                self._track.encoder.set(adapt(self._track.encoder.quality, lost))

    def _tick(self) -> None:
        now = self._clock.monotonic()
        if not self._floor.empty or self._enrolment.recording:
            self._life.act(now)
        if self._life.connected_at is not None and now - self._life.connected_at > _CHANNEL_WITHIN_S:
            self._outlet.give_up()
        if self._enrolment.full:
            self._finish_capture()
        if (ending := self._life.judge(now)) is not None:
            self.end(ending)

    def _announce(self, note: Playing | Played) -> None:
        self._outlet.send(show_note(note))
