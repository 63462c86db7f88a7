"""A client of HTTP/1.1 that writes requests byte by byte (RFC 9112): whole, in pieces, wrong, or not to their end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from random import Random

import h11

from tests.system.fuzzing.bodies import Asked, check_answer, draw_request, read_json, split_chunks
from tests.system.fuzzing.dialects import Who

ANSWERED_S = 12.0
MAX_READ = 4_000_000
_LEFTOVER = b"GET /v1/voices HTTP/1.1\r\nHost: x\r\n\r\n"
_LONG = "x" * 70_000
_Reply = tuple[int, bytes, bytes]


class Call:
    """One connection with one request, from one seed."""

    def __init__(self, who: Who, seed: int) -> None:
        self._random = Random(f"request {seed}")
        self.asked = draw_request(self._random, who)
        self.status: int | None = None
        """None where the client did not wait, or the relay broke the connection off."""

    async def run(self, url: str) -> None:
        """Returns when it is over; fails for an answer that its door does not give."""
        port = int(url.rsplit(":", 1)[1])
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
        try:
            with contextlib.suppress(ConnectionError):
                waits = await self._write(writer)
                if waits:
                    await self._read(reader)
        finally:
            if self._random.random() < 0.3:
                _reset(writer)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _write(self, writer: asyncio.StreamWriter) -> bool:
        """Whether an answer is to be waited for."""
        asked, drawn = self.asked, self._random.random()
        headers = {"Host": "x", "Connection": "close", "Content-Length": str(len(asked.body)), **asked.headers}
        body, waits = asked.body, True
        if drawn < 0.04:
            headers["Content-Length"], waits = str(len(body) + 1000), False
        elif drawn < 0.08:
            headers["Content-Length"] = self._random.choice(("-1", "x", "9" * 30, str(10 * 2**20), "1, 2"))
        elif drawn < 0.12:
            headers["X-Long"] = _LONG
        elif drawn < 0.16:
            body += _LEFTOVER
        elif drawn < 0.2:
            del headers["Content-Length"]
            headers["Transfer-Encoding"] = self._random.choice(("chunked", "gzip, chunked", "identity"))
            size = self._random.choice((f"{len(body):x}", "-1", "fffffffffffffffff", f"{len(body) - 1:x}"))
            body, waits = size.encode() + b"\r\n" + body + b"\r\n0\r\n\r\n", not size.startswith("f")
        elif drawn < 0.24:
            headers["Content-Type"] = self._random.choice(
                ("text/plain", "", "application/json; charset=utf-16", "\xff")
            )
        elif drawn < 0.28:
            body = asked.body.ljust(10 * 2**20)
            headers["Content-Length"] = str(len(body))
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"{asked.method} {asked.path} HTTP/1.1\r\n{head}\r\n".encode("latin-1", "replace"))
        await self._write_body(writer, body)
        return waits

    async def _write_body(self, writer: asyncio.StreamWriter, body: bytes) -> None:
        if self._random.random() < 0.8:
            writer.write(body)
        else:
            for number, piece in enumerate(split_chunks(self._random, body)):
                if writer.transport.is_closing():
                    break
                writer.write(piece)
                if number < 20:
                    await asyncio.sleep(0.005)
        await writer.drain()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            async with asyncio.timeout(ANSWERED_S):
                await self._read_answer(reader)
        except TimeoutError:
            # A long text takes as long as it takes to be heard.
            assert self.status == 200, "no answer came"

    async def _read_answer(self, reader: asyncio.StreamReader) -> None:
        own = h11.Connection(h11.CLIENT)
        own.send(h11.Request(method=self.asked.method, target="/", headers=[("Host", "x")]))
        own.send(h11.EndOfMessage())
        kind, body = b"", b""
        while True:
            event = own.next_event()
            match event:
                case h11.NEED_DATA:
                    own.receive_data(await reader.read(2**16))
                case h11.Response():
                    self.status = event.status_code
                    kind = dict(event.headers).get(b"content-type", b"")
                case h11.Data():
                    body += event.data
                    if len(body) > MAX_READ:
                        return
                case h11.InformationalResponse():
                    # A WebSocket is there, which others attack.
                    self.status = event.status_code
                    return
                case h11.EndOfMessage():
                    break
        self._check(kind, body)

    def _check(self, kind: bytes, body: bytes) -> None:
        assert self.status is not None
        # What is no HTTP, or no handshake, gets no further than the server.
        if self.status >= 400 and self.asked.method != "HEAD" and body and kind != b"text/plain; charset=utf-8":
            check_answer(self.asked.door, self.status, read_json(body))
        assert self.status < 500 or self.status == 503, (self.asked.path, body)


def _reset(writer: asyncio.StreamWriter) -> None:
    own: socket.socket = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def describe(asked: Asked) -> str:
    """A request in a line."""
    return f"{asked.method} {asked.path[:200]} {asked.body[:300]!r}"
