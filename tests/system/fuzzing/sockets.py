"""A client of WebSockets that obeys no rule: it writes frames of its own (RFC 6455, section 5), and may vanish."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode

from tests.system.fuzzing.dialects import Dialect, Who
from tests.system.fuzzing.mutations import LARGE, mutate, spell

ANSWERED_S = 8.0
"""Longer than the relay waits for a client that says nothing; what is still spoken then is left alone."""
_STATUSES = frozenset({400, 401, 403, 404, 429})
_DROPPED = (ConnectionError, ConnectionClosed, OSError)


@asynccontextmanager
async def reach(url: str, path: str, headers: dict[str, str]) -> AsyncIterator[ClientConnection | None]:
    """A connection; None where the relay has said no before there was one, and then in one of the ways to say so."""
    address = "ws" + url.removeprefix("http") + path
    try:
        connection = await connect(address, additional_headers=headers, proxy=None, max_size=None, ping_interval=None)
    except InvalidStatus as refusal:
        assert refusal.response.status_code in _STATUSES, refusal.response
        assert json.loads(refusal.response.body), refusal.response.body
        yield None
        return
    try:
        yield connection
    finally:
        connection.transport.abort()
        await connection.wait_closed()


def write(connection: ClientConnection, payload: str | bytes, opcode: Opcode = Opcode.TEXT, **flags: bool) -> None:
    """One frame, masked as a client's has to be, whatever is in it; raises ConnectionError where nobody is any more."""
    data = payload if isinstance(payload, bytes) else payload.encode("utf-8", "surrogatepass")
    write_raw(connection, _Forged(opcode, data, **flags).serialize(mask=True, extensions=[]))


def write_raw(connection: ClientConnection, data: bytes) -> None:
    """Bytes that may be no frame; raises ConnectionError where nobody is any more."""
    try:
        connection.transport.write(data)
    except RuntimeError as error:
        # The transport has been told of the end by the client's own library, which obeys the rules.
        raise ConnectionResetError from error


def reset(connection: ClientConnection) -> None:
    """Go without a word: what comes afterwards is answered with RST."""
    own: socket.socket = connection.transport.get_extra_info("socket")
    with contextlib.suppress(OSError):
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.transport.abort()


class _Forged(Frame):
    def check(self) -> None:
        """Nothing is wrong with it."""


class Attack:
    """One connection in one dialect, from one seed."""

    def __init__(self, dialect: Dialect, who: Who, seed: int) -> None:
        self._dialect = dialect
        self._who = who
        self._random = Random(f"{dialect.name} {seed}")
        self.code: int | None = None
        """By which the relay closed; None where it had no chance to."""
        self._farewell: int | None = None

    async def run(self, url: str) -> None:
        """Returns when the connection is gone; fails when the relay has said what its dialect does not have."""
        path, headers = self._dialect.find(self._random, self._who)
        async with reach(url, path, headers) as connection:
            if connection is None:
                return
            hearing = asyncio.create_task(self._hear(connection))
            try:
                with contextlib.suppress(*_DROPPED):
                    await self._talk(connection)
                if self._random.random() < 0.3:
                    reset(connection)
                await asyncio.wait([hearing], timeout=ANSWERED_S)
                if hearing.done():
                    hearing.result()
            finally:
                hearing.cancel()
                await asyncio.gather(hearing, return_exceptions=True)
        # A close frame is answered with its own code (RFC 6455, section 5.5.1).
        assert self.code in {None, self._farewell, *self._dialect.codes}, (self._dialect.name, self.code)

    async def _hear(self, connection: ClientConnection) -> None:
        try:
            while True:
                message = await connection.recv()
                if isinstance(message, str):
                    self._dialect.check(json.loads(message))
        except ConnectionClosed as closed:
            self.code = None if closed.rcvd is None else closed.rcvd.code
        except OSError:
            return

    async def _talk(self, connection: ClientConnection) -> None:
        messages = self._dialect.talk(self._random, self._who)
        for _ in range(self._random.randrange(3, 16)):
            self._say(connection, spell(self._random, mutate(self._random, next(messages))))
            if self._random.random() < 0.4:
                await asyncio.sleep(self._random.random() * 0.05)
        drawn = self._random.random()
        if drawn < 0.4:
            self._farewell = self._random.choice((0, 999, 1000, 1001, 1005, 1015, 3000, 4999))
            write(connection, struct.pack("!H", self._farewell), Opcode.CLOSE)
        elif drawn < 0.5:
            await connection.close()

    def _say(self, connection: ClientConnection, text: str) -> None:
        drawn = self._random.random()
        if drawn < 0.9:
            write(connection, text)
        elif drawn < 0.93:
            half = len(text) // 2
            write(connection, text[:half], fin=False)
            write(connection, b"between", Opcode.PING)
            write(connection, text[half:], Opcode.CONT)
        else:
            self._break(connection, text)

    def _break(self, connection: ClientConnection, text: str) -> None:
        """What ends most connections."""
        match self._random.randrange(8):
            case 0:
                write(connection, self._random.randbytes(200), Opcode.BINARY)
            case 1:
                write(connection, b"\xff\xfe not text")
            case 2:
                write(connection, LARGE)
            case 3:
                write(connection, text, rsv1=True)
            case 4:
                write(connection, text, Opcode.CONT)
            case 5:
                write(connection, b"x" * 200, Opcode.PING)
            case 6:
                write_raw(connection, self._random.randbytes(50))
            case 7:
                # The head of a frame of a gigabyte, and nothing of it.
                write_raw(connection, b"\x81\xff" + (1 << 30).to_bytes(8, "big") + bytes(4))
