"""One WebSocket to a relay, and the contexts that speak over it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from timbrelay.errors import OpsError
from timbrelay.events import (
    Cancelled,
    Chunk,
    Done,
    Event,
    Failed,
    Flushed,
    Hello,
    Opened,
    ProtocolFault,
    RelayError,
    Sentence,
    SentenceEnd,
    Words,
    parse_frame,
    parse_message,
)

ContextEvent = Sentence | Words | Chunk | SentenceEnd | Flushed | Done | Cancelled

_QUEUE_EVENTS = 1024
_OPEN_TIMEOUT_S = 30.0


class ConnectionLost(OpsError):
    """Raised when the connection ends before the context does. `code` is the WebSocket's close code."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"The relay closed the connection: {reason or 'no reason given'} (close code {code}).")
        self.code = code
        self.reason = reason


class Context:
    """Text in, events out. Made by `Connection.open`; to be read to its end."""

    def __init__(self, connection: Connection, name: str, voice: str) -> None:
        self.name = name
        self.voice = voice
        self.number = -1
        self.version = 0
        self.token = ""
        """Resumes it over another connection, see `Connection.resume`."""
        self.characters = 0
        """How much of its text the relay had when it was opened: more than none only after a resume."""
        self.place = (0, -1)
        """Sentence and chunk of the last audio that has come."""
        self._connection = connection
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._events: asyncio.Queue[ContextEvent | OpsError] = asyncio.Queue(_QUEUE_EVENTS)

    async def send(self, text: str) -> None:
        """The next piece of text; at most 10,000 characters."""
        await self._connection.send({"type": "text", "context": self.name, "text": text})

    async def flush(self) -> None:
        """Has spoken what is there, without waiting for more."""
        await self._connection.send({"type": "flush", "context": self.name})

    async def end(self) -> None:
        """No more text."""
        await self._connection.send({"type": "end", "context": self.name})

    async def cancel(self) -> None:
        """Stops; the events end with Cancelled."""
        await self._connection.send({"type": "cancel", "context": self.name})

    async def __aiter__(self) -> AsyncIterator[ContextEvent]:
        """The context's events, the last of which is Done or Cancelled.

        Raises RelayError when the relay ends the context, ConnectionLost when the connection ends.
        """
        while True:
            event = await self._events.get()
            if isinstance(event, OpsError):
                raise event
            yield event
            if isinstance(event, Done | Cancelled):
                return

    async def wait_opened(self) -> None:
        """Raises RelayError when the relay refuses the context, ConnectionLost when the connection ends."""
        await self._opened

    async def take(self, event: Event | Chunk | OpsError) -> None:
        """Called by the connection. A context that is not read holds up its whole connection, as TCP does."""
        if not self._opened.done():
            self._open(event)
        elif isinstance(event, Failed):
            await self._events.put(event.error)
        elif not isinstance(event, Hello | Opened):
            if isinstance(event, Chunk):
                self.place = (event.sentence, event.number)
            await self._events.put(event)

    def fail(self, error: OpsError) -> None:
        """Called by the connection when it ends: whoever waits learns of it, after the events before it."""
        if not self._opened.done():
            self._open(error)
        elif self._events.full():
            self._events.get_nowait()
        with contextlib.suppress(asyncio.QueueFull):
            self._events.put_nowait(error)

    def _open(self, event: Event | Chunk | OpsError) -> None:
        if isinstance(event, Opened):
            self.number, self.version = event.number, event.version
            self.token, self.characters = event.resume, event.characters
            self._opened.set_result(None)
            return
        error = event.error if isinstance(event, Failed) else event
        fault = error if isinstance(error, OpsError) else ProtocolFault("The relay spoke before it opened the context.")
        self._opened.set_exception(fault)
        # Nobody need be waiting, for example when the opening itself was cancelled.
        self._opened.exception()


class Connection:
    """Sends for its contexts and hands each its own events."""

    def __init__(self, socket: ClientConnection, hello: Hello) -> None:
        self.sample_rate = hello.sample_rate
        self.chunk_samples = hello.chunk_samples
        self.refusals: list[RelayError] = []
        """Messages that the relay refused without ending a context; the last hundred."""
        self._socket = socket
        self._contexts: dict[str, Context] = {}
        self._made = 0

    async def open(self, voice: str, name: str = "") -> Context:
        """Begins a context. Raises RelayError when it is refused, ConnectionLost when the connection ends."""
        self._made += 1
        name = name or f"c{self._made}"
        return await self._begin(Context(self, name, voice), {"type": "open", "voice": voice})

    async def resume(self, lost: Context) -> Context:
        """Goes on with a context whose connection was lost, behind the last chunk that came. Raises as `open`."""
        sentence, chunk = lost.place
        context = Context(self, lost.name, lost.voice)
        context.place = lost.place
        return await self._begin(context, {"type": "resume", "token": lost.token, "sentence": sentence, "chunk": chunk})

    async def send(self, message: dict[str, Any]) -> None:
        """Sends one message. Raises ConnectionLost."""
        try:
            await self._socket.send(json.dumps(message))
        except ConnectionClosed as error:
            raise _lost(error) from error

    async def read(self) -> None:
        """Hands out what arrives until the connection ends. Run by `Client.connect`."""
        failure: OpsError = ConnectionLost(1006, "")
        try:
            async for message in self._socket:
                await self._dispatch(parse_frame(message) if isinstance(message, bytes) else parse_message(message))
            failure = ConnectionLost(self._socket.close_code or 1006, self._socket.close_reason or "")
        except ConnectionClosed as error:
            failure = _lost(error)
        except ProtocolFault as error:
            failure = error
        finally:
            for context in self._contexts.values():
                context.fail(failure)

    async def _begin(self, context: Context, message: dict[str, Any]) -> Context:
        self._contexts[context.name] = context
        await self.send({**message, "context": context.name})
        async with asyncio.timeout(_OPEN_TIMEOUT_S):
            await context.wait_opened()
        return context

    async def _dispatch(self, event: Event | Chunk | None) -> None:
        if event is None:
            return
        context = self._find(event)
        if context is None:
            if isinstance(event, Failed):
                self.refusals = [*self.refusals[-99:], event.error]
            return
        if isinstance(event, Done | Cancelled | Failed):
            del self._contexts[context.name]
        await context.take(event)

    def _find(self, event: Event | Chunk) -> Context | None:
        if isinstance(event, Chunk):
            numbered = (context for context in self._contexts.values() if context.number == event.context)
            return next(numbered, None)
        return None if isinstance(event, Hello) or event.context is None else self._contexts.get(event.context)


def _lost(error: ConnectionClosed) -> ConnectionLost:
    received = error.rcvd
    return ConnectionLost(received.code if received else 1006, received.reason if received else "")
