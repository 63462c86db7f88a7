"""Bounds below the application: connections that never say anything, and answers that nobody reads."""

from __future__ import annotations

import asyncio

import h11
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode
from websockets.protocol import State

HEAD_TIMEOUT_S = 5.0
"""How long a connection may take until its first request's head is complete."""

LINGER_S = 12.0
"""How long a closed connection may take to be gone; longer than uvicorn waits for the answer to its close frame."""

_NO_HANDSHAKE = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

MAX_UNREAD_PONGS = 256 * 1024
"""Bytes on their way to a client that pings and does not read."""


class PromptHttp(H11Protocol):
    """Closes connections without a first request, which would otherwise take places for as long as they like."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the request."""
        super().connection_made(transport)
        self._head_due = self.loop.call_later(HEAD_TIMEOUT_S, transport.abort)

    def handle_events(self) -> None:
        """A request that has begun is uvicorn's to time."""
        super().handle_events()
        if self.cycle is not None:
            self._head_due.cancel()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """A WebSocket has bounds of its own."""
        self._head_due.cancel()
        super().handle_websocket_upgrade(event)

    def send_400_response(self, msg: str) -> None:
        """What comes is no HTTP any more: whoever handles the request it came with has nobody left to answer."""
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self._head_due.cancel()
        super().connection_lost(exc)


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """Ends connections whose client floods it with pings, or leaves unread what it is sent."""

    def data_received(self, data: bytes) -> None:
        """What is no handshake (it has a body, or a line that is too long) is refused; uvicorn would wait for ever."""
        super().data_received(data)
        if not self.handshake_initiated and self.conn.handshake_exc is not None:
            self.transport.write(_NO_HANDSHAKE)
            self.transport.close()

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        """The application is done with the connection: what its client does not read is thrown away.

        One without a close frame (RFC 6455, section 5.5.1) could not be told; there is nothing to wait for.
        """
        super().on_task_complete(task)
        if self.handshake_complete and self.conn.state is State.OPEN:
            self.transport.abort()
        else:
            self.loop.call_later(LINGER_S, self.transport.abort)

    async def send(self, message: ASGISendEvent) -> None:
        """Pass it on; a refusal before the upgrade is an answer, which uvicorn would log as one that is missing."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True

    def send_receive_event_to_app(self) -> None:
        """A text that is no UTF-8 ends the connection (RFC 6455, section 8.1), and is no news for our log."""
        if self.close_sent or self.curr_msg_data_type != "text" or _is_utf8(b"".join(self.frames)):
            super().send_receive_event_to_app()
            return
        self.frames = []
        # A close frame of the client's that came with it has been taken already.
        if self.conn.state is State.OPEN:
            self.conn.send_close(CloseCode.INVALID_DATA)
            self.handle_parser_exception()

    def handle_parser_exception(self) -> None:
        """The connection is closed from here: what the application still says has no reader, and is no fault of its."""
        super().handle_parser_exception()
        self.disconnected = True

    def keepalive_timeout(self) -> None:
        """As above: nobody answers pings any more."""
        super().keepalive_timeout()
        self.disconnected = self.disconnected or self.close_sent

    def handle_ping(self) -> None:
        """Answer a ping (RFC 6455, section 5.5.2) unless the answers pile up."""
        if self.transport.get_write_buffer_size() > MAX_UNREAD_PONGS:
            self.transport.abort()
            return
        super().handle_ping()


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
