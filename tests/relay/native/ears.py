"""A client of the running relay that keeps all it is told, and checks it against the AsyncAPI document."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

from jsonschema_rs import Draft202012Validator
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from relay.native.document import make_document
from relay.native.frames import HEADER, MEL, REST
from tests.conftest import DEADLINE_S, RunningStack, StartStack
from tests.relay.sharing import Shared, share
from timbrelay.stack.servers import Servers

Place = tuple[int, int]


@cache
def _validator(kind: str) -> Draft202012Validator:
    document = make_document()
    payload = {"$ref": f"#/components/messages/{kind}/payload", "components": document["components"]}
    return Draft202012Validator(payload)


class Ear:
    """One connection; `frames` are those of each context, by sentence and chunk."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.messages: list[dict[str, Any]] = []
        self.names: dict[int, str] = {}
        self.frames: dict[str, list[tuple[Place, bytes]]] = {}
        self.others: list[bytes] = []
        """Mel frames and rests."""

    async def say(self, kind: str, context: str = "c", **fields: object) -> None:
        """One message."""
        await self.connection.send(json.dumps({"type": kind, "context": context, **fields}))

    async def speak(self, voice: UUID, text: str, context: str = "c", **wishes: object) -> None:
        """A whole text."""
        await self.say("open", context, voice=str(voice), **wishes)
        for start in range(0, len(text), 10_000):
            await self.say("text", context, text=text[start : start + 10_000])
        await self.say("end", context)

    async def hear(self) -> dict[str, Any]:
        """The next message or, of a frame, `{"type": "frame", "context"}`."""
        raw = await asyncio.wait_for(self.connection.recv(), DEADLINE_S)
        if isinstance(raw, bytes):
            return self._keep(raw)
        message: dict[str, Any] = json.loads(raw)
        _validator(message["type"]).validate(message)
        self.messages.append(message)
        if message["type"] == "opened":
            self.names[message["number"]] = message["context"]
        return message

    async def until(self, *kinds: str, context: str | None = None) -> dict[str, Any]:
        """The next of these kinds; any error but one that is waited for fails the test."""
        while True:
            message = await self.hear()
            if message["type"] in kinds and (context is None or message["context"] == context):
                return message
            assert message["type"] != "error", message

    async def frame(self, count: int, context: str = "c") -> Place:
        """Reads until there are so many frames of a context; the place of the last."""
        while len(self.frames.get(context, [])) < count:
            await self.until("frame")
        return self.frames[context][-1][0]

    async def closed(self) -> tuple[int, str]:
        """Reads to the end: code and reason."""
        try:
            while True:
                await self.hear()
        except ConnectionClosed as end:
            return (end.rcvd.code, end.rcvd.reason) if end.rcvd else (1006, "")

    def pcm(self, context: str = "c") -> bytes:
        """All its audio."""
        return b"".join(frame for _, frame in self.frames.get(context, []))

    def kinds(self) -> list[str]:
        """Of all messages."""
        return [message["type"] for message in self.messages]

    def cut(self) -> None:
        """The TCP connection ends, and nobody says so."""
        self.connection.transport.abort()

    def _keep(self, raw: bytes) -> dict[str, Any]:
        _, flags, _, number, sentence, chunk = HEADER.unpack(raw[: HEADER.size])
        if flags & (MEL | REST):
            self.others.append(raw)
            return {"type": "other", "context": self.names[number]}
        name = self.names[number]
        self.frames.setdefault(name, []).append(((sentence, chunk), raw[HEADER.size :]))
        return {"type": "frame", "context": name}


@asynccontextmanager
async def listen(stack: RunningStack, key: str, **more: Any) -> AsyncIterator[Ear]:
    """A connection that was greeted."""
    url = stack.relay_url.replace("http", "ws") + "/v1/stream"
    more.setdefault("additional_headers", {"Authorization": f"Bearer {key}"})
    async with connect(url, **more) as connection:
        ear = Ear(connection)
        assert (await ear.hear())["type"] == "hello"
        yield ear


@contextmanager
def share_speech(servers: Servers, variables: dict[str, str], folder: Path, **changed: Any) -> Iterator[Shared]:
    """A relay and a worker for all the tests of a module."""

    def start(start_stack: StartStack) -> RunningStack:
        return start_stack(only=("worker", "relay"), **changed)

    with share(servers, variables, folder, start) as lent:
        yield lent


def read_rss(stack: RunningStack, name: str = "relay") -> int:
    """Bytes that a process holds in memory."""
    status = Path(f"/proc/{stack.processes[name].pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return 1024 * int(line.split()[1])
