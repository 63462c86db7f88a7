"""The doors of the two WebSockets: who may speak is let through to a face, everyone else is told why not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from starlette.websockets import WebSocket, WebSocketDisconnect

from relay import metrics
from relay.dialects.elevenlabs.frames import error_frame
from relay.dialects.elevenlabs.keys import find_key, missing_key
from relay.dialects.elevenlabs.messages import read_key, read_object
from relay.dialects.elevenlabs.multi_face import MultiFace
from relay.dialects.elevenlabs.options import Options, read_options
from relay.dialects.elevenlabs.refusals import answer_error, close_code, close_reason
from relay.dialects.elevenlabs.stream_face import StreamFace
from relay.doors.face import Face, Frame
from relay.doors.reception import Reception
from relay.doors.websocket import serve as serve_socket
from relay.entrance.authentication import find_origin
from relay.entrance.visitors import Visitor
from relay.errors import InvalidMessage, RelayError

FIRST_MESSAGE_S = 10.0
"""How long a client without a key in its request may take to bring one."""

MakeFace = Callable[[str, Options], Face]


@dataclass(frozen=True, slots=True)
class SocketDoor:
    """One of the two sockets.

    `refuses_early`: whether a key or voice that opens nothing is refused before the upgrade. Voice agents take the
    status of that for an answer and do not try again; the SDK knows only messages.
    """

    reception: Reception
    make_face: MakeFace
    refuses_early: bool

    async def serve(self, socket: WebSocket) -> None:
        """Serve the connection to its end."""
        voice, key, first = socket.path_params["voice"], find_key(socket), None
        visitor: Visitor | None = None
        try:
            options = read_options(socket.query_params)
            if key:
                visitor = await self._admit(socket, key, voice)
        except RelayError as error:
            await self._refuse(socket, error)
            return
        await socket.accept()
        try:
            if visitor is None:
                first, key = await _read_key(socket)
                visitor = await self._admit(socket, key, voice)
        except WebSocketDisconnect:
            return
        except RelayError as error:
            await self._dismiss(socket, error)
            return
        face = self.make_face(voice, options)
        await serve_socket(socket, self.reception.converse(visitor), face, first=first)

    async def _admit(self, socket: WebSocket, key: str, voice: str) -> Visitor:
        visitor = await self.reception.admit(key, find_origin(socket))
        if self.refuses_early:
            await self.reception.gate.casting.cast(visitor.tenant, voice)
        return visitor

    async def _refuse(self, socket: WebSocket, error: RelayError) -> None:
        # Of a parameter that cannot be read, only a message or a close says which; a status alone does not.
        if self.refuses_early and not isinstance(error, InvalidMessage):
            await socket.send_denial_response(answer_error(error))
            return
        await socket.accept()
        await self._dismiss(socket, error)

    async def _dismiss(self, socket: WebSocket, error: RelayError) -> None:
        """The reason, then the close."""
        metrics.ERRORS.labels(error.code).inc()
        with suppress(TimeoutError, RuntimeError, WebSocketDisconnect):
            async with asyncio.timeout(self.reception.limits.send_timeout_s):
                await socket.send_text(error_frame({}, error, final=False))
                await socket.close(close_code(error), close_reason(error))


def make_doors(reception: Reception) -> dict[str, Callable[[WebSocket], Awaitable[None]]]:
    """What serves each of the two, by the last part of its path."""
    return {
        "stream-input": SocketDoor(reception, StreamFace, refuses_early=False).serve,
        "multi-stream-input": SocketDoor(reception, MultiFace, refuses_early=True).serve,
    }


async def _read_key(socket: WebSocket) -> tuple[Frame, str]:
    """The first message, and the key in it; raises RequestRefused, Unauthorized or InvalidMessage."""
    try:
        async with asyncio.timeout(FIRST_MESSAGE_S):
            event = await socket.receive()
    except TimeoutError as error:
        raise missing_key() from error
    if event["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(event.get("code", 1005))
    text = event.get("text")
    first: Frame = event["bytes"] if text is None else text
    key = read_key(read_object(first))
    if not key:
        raise missing_key()
    return first, key
