"""`/tts/websocket`: who may speak is let through to a face, everyone else is told why not before the upgrade."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.websockets import WebSocket

from relay.dialects.answers import REQUEST_ID
from relay.dialects.cartesia.answers import answer_error
from relay.dialects.cartesia.face import CartesiaFace
from relay.dialects.cartesia.keys import find_key
from relay.doors.reception import Reception
from relay.doors.websocket import serve
from relay.entrance.authentication import find_origin
from relay.errors import RelayError


@dataclass(frozen=True, slots=True)
class SocketDoor:
    """A conversation of many contexts."""

    reception: Reception

    async def speak(self, socket: WebSocket) -> None:
        """Serve the connection to its end."""
        face = CartesiaFace()
        try:
            visitor = await self.reception.admit(find_key(socket), find_origin(socket))
        except RelayError as error:
            await socket.send_denial_response(answer_error(error, face.request))
            return
        await socket.accept(headers=[(REQUEST_ID.encode(), face.request.encode())])
        await serve(socket, self.reception.converse(visitor), face)
