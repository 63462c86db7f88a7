"""A WebSocket on one side, a Face and a Conversation on the other, and nothing decided in between."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import structlog
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from relay import metrics
from relay.cancellation import end
from relay.doors.codecs import load_codec_for
from relay.doors.conversation import FAULT, INTERNAL_ERROR, NOT_READING, POLICY_VIOLATION, Conversation
from relay.doors.face import Close, Face, Frame, Sent
from relay.entrance.visitors import HangUp
from relay.errors import RelayError
from relay.speaking.commands import Refuse
from relay.speaking.events import Audio

log = structlog.get_logger()

_MEANT = frozenset({1000, 1001})
"""Close codes by which a client says that it will not come back (RFC 6455, section 7.4.1)."""


async def serve(
    socket: WebSocket, conversation: Conversation, face: Face, *, first: Frame | None = None, resumes: bool = False
) -> None:
    """Speak with the client of an accepted socket until either side ends it; `first` was read already.

    With `resumes` the contexts of a client whose connection is lost wait for it to come back, and those that were done.
    """
    await _Connection(socket, conversation, face).run(first, resumes=resumes)


class _Connection:
    """One client."""

    def __init__(self, socket: WebSocket, conversation: Conversation, face: Face) -> None:
        self._socket = socket
        self._conversation = conversation
        self._face = face

    async def run(self, first: Frame | None, *, resumes: bool) -> None:
        """Returns when the connection has ended."""
        ending = HangUp(1000, "")
        if resumes:
            self._conversation.keep_done()
        async with self._conversation:
            try:
                for frame in self._face.greet():
                    await self._send(frame)
                await self._serve(first)
            except HangUp as hang_up:
                ending = hang_up
            except WebSocketDisconnect as gone:
                if resumes and gone.code not in _MEANT and self._conversation.session.tokens:
                    await self._conversation.linger()
            except Exception:
                log.exception("a connection broke")
                ending = HangUp(INTERNAL_ERROR, FAULT)
            # Beside what the conversation has left to do: when Redis is away, a client is told no later for it.
            closing = asyncio.create_task(self._close(ending))
        await closing

    async def _serve(self, first: Frame | None) -> None:
        """Read and write side by side; the first that ends, ends all."""
        self._conversation.on_tick = self._tick
        tasks = [asyncio.create_task(step) for step in (self._listen(first), self._write(), self._watch())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._conversation.on_tick = None
            await end(tasks)

    async def _listen(self, first: Frame | None) -> None:
        if first is not None:
            await self._hear(first)
        while True:
            try:
                # Not wait_for: on Python 3.11 it swallows a cancellation that meets an arriving message.
                async with asyncio.timeout(self._conversation.limits.idle_timeout_s):
                    event = await self._socket.receive()
            except TimeoutError as error:
                if self._conversation.session.keys:
                    continue
                raise HangUp(POLICY_VIOLATION, "nothing was said for too long") from error
            if event["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(event.get("code", 1005))
            text = event.get("text")
            await self._hear(event["bytes"] if text is None else text)
            # What has arrived already is received without waiting: a burst of text must not hold up everybody else.
            await asyncio.sleep(0)

    async def _hear(self, raw: Frame) -> None:
        try:
            commands = self._face.hear(raw, self._conversation.clock.monotonic())
        except RelayError as error:
            commands = [Refuse(None, error)]
        for command in commands:
            await load_codec_for(self._face, command)
            await self._conversation.follow(command)

    def _tick(self) -> None:
        for wanted in self._face.tick(self._conversation.clock.monotonic()):
            if isinstance(wanted, Close):
                self._conversation.hang_up(HangUp(wanted.code, wanted.reason))
            else:
                self._conversation.act(wanted)

    async def _write(self) -> None:
        while True:
            event = await self._conversation.outbox.get()
            if isinstance(event, Close):
                raise HangUp(event.code, event.reason)
            with metrics.ENCODE_STAGE.time():
                told = self._face.tell(event)
            for sent in told:
                await self._send(sent)
            if isinstance(event, Audio):
                metrics.SEND_STAGE.observe(self._conversation.clock.monotonic() - event.ready_at)

    async def _send(self, sent: Sent) -> None:
        if isinstance(sent, Close):
            raise HangUp(sent.code, sent.reason)
        try:
            async with asyncio.timeout(self._conversation.limits.send_timeout_s):
                if isinstance(sent, bytes):
                    await self._socket.send_bytes(sent)
                else:
                    await self._socket.send_text(sent)
        except TimeoutError as error:
            raise HangUp(POLICY_VIOLATION, NOT_READING) from error

    async def _watch(self) -> None:
        # Shielded: who is cancelled while waiting for it must not end it for those who may still come.
        raise await asyncio.shield(self._conversation.ending)

    async def _close(self, ending: HangUp) -> None:
        if self._socket.client_state is WebSocketState.DISCONNECTED:
            return
        limits = self._conversation.limits
        patience_s = limits.send_timeout_s if ending.patience_s is None else ending.patience_s
        with suppress(RuntimeError, TimeoutError, WebSocketDisconnect):
            async with asyncio.timeout(patience_s):
                await self._socket.close(ending.code, ending.reason)
