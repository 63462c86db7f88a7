"""The client's connection, against a WebSocket server that says what a relay might."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from timbrelay.client import Cancelled, Chunk, Client, ConnectionLost, Done, RelayError, RelayUnreachable
from timbrelay.errors import OpsError
from timbrelay.events import ProtocolFault

HELLO = {"type": "hello", "protocol": 1, "sample_rate": 24000, "chunk_samples": 1920}
Script = Callable[[ServerConnection], Awaitable[None]]


def frame(context: int, number: int, *, last: bool = False) -> bytes:
    return struct.pack(">BBHIII", 1, int(last), 0, context, 0, number) + struct.pack("<h", number)


async def send(socket: ServerConnection, kind: str, context: str | None, **fields: object) -> None:
    await socket.send(json.dumps({"type": kind, "context": context, **fields}))


async def take_open(socket: ServerConnection, number: int = 0) -> str:
    """Greets the next context, and gives its name."""
    message = json.loads(await socket.recv())
    assert message["type"] == "open"
    await send(socket, "opened", message["context"], number=number, voice=message["voice"], version=1)
    return str(message["context"])


@asynccontextmanager
async def relay(script: Script, greeting: str | bytes = json.dumps(HELLO)) -> AsyncIterator[Client]:
    async def handle(socket: ServerConnection) -> None:
        await socket.send(greeting)
        await script(socket)

    async with serve(handle, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with Client(f"http://127.0.0.1:{port}", "tr_key") as client:
            yield client


async def test_each_context_gets_its_own() -> None:
    """Events of contexts that speak side by side reach each its own context, in order."""

    async def script(socket: ServerConnection) -> None:
        names = [await take_open(socket, number) for number in (7, 9)]
        for number in range(3):
            for context in (9, 7):
                await socket.send(frame(context, number))
        for name in names:
            await send(socket, "done", name, sentences=1, samples=3)
        await socket.wait_closed()

    async with relay(script) as client, client.connect() as connection:
        contexts = [await connection.open("v"), await connection.open("v")]
        for context in contexts:
            events = [event async for event in context]
            assert [event.number for event in events if isinstance(event, Chunk)] == [0, 1, 2]
            assert {event.context for event in events if isinstance(event, Chunk)} == {context.number}
            assert events[-1] == Done(context.name, 1, 3)
        assert [context.number for context in contexts] == [7, 9]


async def test_what_was_sent_is_what_arrives() -> None:
    """The messages of a context reach the relay as they were meant, in order."""
    received: list[dict[str, object]] = []

    async def script(socket: ServerConnection) -> None:
        name = await take_open(socket)
        while not received or received[-1]["type"] != "cancel":
            received.append(json.loads(await socket.recv()))
        await send(socket, "cancelled", name)
        await socket.wait_closed()

    async with relay(script) as client, client.connect() as connection:
        context = await connection.open("v", "mine")
        await context.send("é")
        await context.flush()
        await context.end()
        await context.cancel()
        assert [event async for event in context] == [Cancelled("mine")]
    assert received[0] == {"type": "text", "context": "mine", "text": "é"}
    assert [message["type"] for message in received] == ["text", "flush", "end", "cancel"]


async def test_a_refused_context_is_an_error() -> None:
    """A context that the relay does not open raises the relay's error."""

    async def script(socket: ServerConnection) -> None:
        name = json.loads(await socket.recv())["context"]
        await send(socket, "error", name, code="unknown_voice", message="no such voice", retryable=False)
        await socket.wait_closed()

    async with relay(script) as client, client.connect() as connection:
        with pytest.raises(RelayError) as error:
            await connection.open("v")
        assert error.value.code == "unknown_voice"


async def test_an_error_ends_its_context_alone() -> None:
    """An error with a context ends that one after the events before it; one without ends none."""

    async def script(socket: ServerConnection) -> None:
        name = await take_open(socket)
        await send(socket, "error", None, code="invalid_message", message="what?", retryable=False)
        await socket.send(frame(0, 0))
        await send(socket, "error", name, code="timeout", message="too slow", retryable=True)
        await send(socket, "done", await take_open(socket, 1), sentences=0, samples=0)
        await socket.wait_closed()

    async with relay(script) as client, client.connect() as connection:
        context = await connection.open("v")
        heard = []
        with pytest.raises(RelayError, match="too slow"):
            async for event in context:
                heard.append(event)
        assert len(heard) == 1
        assert [error.code for error in connection.refusals] == ["invalid_message"]
        assert [event async for event in await connection.open("v")] == [Done("c2", 0, 0)]


async def test_a_lost_connection_is_told_with_its_code() -> None:
    """When the relay closes, whoever waits learns of the close code, after the events before it."""

    async def script(socket: ServerConnection) -> None:
        await take_open(socket)
        await socket.send(frame(0, 0))
        await socket.close(1001, "shutting down")

    async with relay(script) as client, client.connect() as connection:
        context = await connection.open("v")
        heard = []
        with pytest.raises(ConnectionLost, match=r"shutting down \(close code 1001\)"):
            async for event in context:
                heard.append(event)
        assert len(heard) == 1
        with pytest.raises(ConnectionLost):
            await context.send("too late")


async def test_a_lost_context_is_resumed_behind_what_has_come() -> None:
    """Over another connection, by its token; the place of the last chunk is named."""
    asked: list[dict[str, object]] = []

    async def script(socket: ServerConnection) -> None:
        message = json.loads(await socket.recv())
        asked.append(message)
        opened = {"number": 4, "voice": "v", "version": 1, "resume": f"token-{len(asked)}", "characters": 12}
        await send(socket, "opened", message["context"], **opened)
        if message["type"] == "open":
            await socket.send(frame(4, 0))
            await socket.send(frame(4, 1))
            socket.transport.abort()
            return
        await socket.send(frame(4, 2, last=True))
        await send(socket, "done", message["context"], sentences=1, samples=3)
        await socket.wait_closed()

    heard = []
    async with relay(script) as client:
        async with client.connect() as connection:
            lost = await connection.open("v", "mine")
            with pytest.raises(ConnectionLost):
                async for event in lost:
                    heard.append(event)
        async with client.connect() as connection:
            context = await connection.resume(lost)
            heard += [event async for event in context]
    assert asked[1] == {"type": "resume", "context": "mine", "token": "token-1", "sentence": 0, "chunk": 1}
    assert (context.token, context.characters, context.place) == ("token-2", 12, (0, 2))
    assert [event.number for event in heard if isinstance(event, Chunk)] == [0, 1, 2]


@pytest.mark.parametrize(
    "greeting", [b"\x00", json.dumps({"type": "done", "context": "c", "sentences": 0, "samples": 0})]
)
async def test_a_relay_must_greet(greeting: str | bytes) -> None:
    """Whatever does not begin with the greeting is no relay."""

    async def script(socket: ServerConnection) -> None:
        await socket.wait_closed()

    async with relay(script, greeting) as client:
        with pytest.raises(ProtocolFault):
            async with client.connect():
                pass


async def test_nonsense_ends_the_connection_with_a_sentence() -> None:
    """A message that is not of the protocol reaches whoever waits as a fault, not as silence."""

    async def script(socket: ServerConnection) -> None:
        await take_open(socket)
        await socket.send("nonsense")
        await socket.wait_closed()

    async with relay(script) as client, client.connect() as connection:
        context = await connection.open("v")
        with pytest.raises(ProtocolFault):
            async for _ in context:
                pass


@pytest.mark.parametrize(("status", "code"), [(401, "unauthorized"), (503, "http_error")])
async def test_a_refusal_before_the_socket_is_an_error(status: int, code: str) -> None:
    """A refusal by HTTP carries its code, also when its body is not the relay's."""

    def refuse(connection: ServerConnection, request: Request) -> Response:
        return connection.respond(status, "no")

    async with serve(lambda socket: asyncio.sleep(0), "127.0.0.1", 0, process_request=refuse) as server:
        client = Client(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "x")
        with pytest.raises(RelayError) as error:
            async with client, client.connect():
                pass
        assert error.value.code == code


async def test_nobody_there_is_an_error_of_its_own() -> None:
    """Where nothing listens, both ways say so with the address."""
    async with serve(lambda socket: asyncio.sleep(0), "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with Client(url, "x") as client:
        with pytest.raises(RelayUnreachable, match=url):
            await client.voices()
        with pytest.raises(RelayUnreachable, match=url):
            async with client.connect():
                pass
    assert issubclass(RelayUnreachable, OpsError)
