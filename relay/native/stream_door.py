"""The door of the native protocol: who may speak is let through to a connection, everyone else is told why not."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.websockets import WebSocket

from relay.api.problems import answer_problem
from relay.doors.reception import Reception
from relay.doors.websocket import serve
from relay.entrance.authentication import find_origin, read_bearer
from relay.errors import RelayError
from relay.native.face import NativeFace

SUBPROTOCOL = "timbrelay.v1"
KEY_PREFIX = "bearer."
"""A browser's WebSocket sends no headers: there the key is a second subprotocol, behind this (RFC 6455, 4.1)."""


@dataclass(frozen=True, slots=True)
class StreamDoor:
    """The WebSocket at /v1/stream."""

    reception: Reception

    async def __call__(self, socket: WebSocket) -> None:
        """Refuse before the upgrade, or serve the connection to its end."""
        try:
            visitor = await self.reception.admit(find_key(socket), find_origin(socket))
        except RelayError as error:
            await socket.send_denial_response(answer_problem(error))
            return
        await socket.accept(SUBPROTOCOL if SUBPROTOCOL in socket.scope["subprotocols"] else None)
        face = NativeFace(self.reception.limits.chunk_ms)
        await serve(socket, self.reception.converse(visitor), face, resumes=True)


def find_key(socket: WebSocket) -> str:
    """The key in the header or, where there is none, among the subprotocols; empty when there is none at all."""
    offered = (name.removeprefix(KEY_PREFIX) for name in socket.scope["subprotocols"] if name.startswith(KEY_PREFIX))
    return read_bearer(socket) or next(offered, "")
