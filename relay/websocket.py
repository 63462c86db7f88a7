"""The native WebSocket: a socket on one side, a Session on the other, and nothing decided in between."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

import structlog
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from relay import metrics
from relay.clock import Clock
from relay.errors import InvalidMessage, RelayError, ServiceUnavailable, UnknownVoice
from relay.hub import Hub
from relay.messages import Open, read_message
from relay.outbox import ROOM_FOR_SENTENCES, Outbox, OutboxFull
from relay.outputs import Bury, Output, Play, Say, Silence, Submit
from relay.session import Session
from storage.database import Database, bounded
from storage.errors import ServerUnavailable
from storage.streams.wire import Job, Result
from storage.tables import VoiceState
from storage.voices.voices import Voice, find_voice

log = structlog.get_logger()

POLICY_VIOLATION = 1008
INTERNAL_ERROR = 1011
_WORK_CAPACITY = 1024
_NOT_READING = "the client does not read what it is sent"


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a connection may keep others waiting, and how long its chunks are."""

    send_timeout_s: float
    idle_timeout_s: float
    sentence_timeout_s: float
    chunk_ms: int = 80


class _HangUp(Exception):
    """Ends a connection from our side, with a close code and a reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Connection:
    """One client. Implements the hub's Listener; `run` returns when the connection has ended."""

    def __init__(
        self, socket: WebSocket, tenant: UUID, hub: Hub, database: Database, clock: Clock, limits: Limits
    ) -> None:
        self._socket = socket
        self._tenant = tenant
        self._hub = hub
        self._database = database
        self._limits = limits
        self._clock = clock
        self._outbox = Outbox()
        self._session = Session(hub.relay, tenant, hub.admission, clock, self._has_room, limits.chunk_ms)
        self._work: asyncio.Queue[Job | str] = asyncio.Queue(_WORK_CAPACITY)
        self._routed: frozenset[str] = frozenset()
        self._failure: asyncio.Future[_HangUp] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Speak with the client until either side ends it."""
        self._hub.join(self)
        ending = (1000, "")
        try:
            self._do(self._session.hello())
            await self._serve()
        except _HangUp as hang_up:
            ending = (hang_up.code, hang_up.reason)
        except WebSocketDisconnect:
            pass
        except Exception:
            log.exception("a connection broke")
            ending = (INTERNAL_ERROR, "a fault of ours; connect again")
        finally:
            self._hub.leave(self)
            await self._bury_all()
            await self._close(*ending)

    def receive(self, result: Result) -> None:
        """Results go straight through the session into the outbox."""
        self._guard(lambda: self._session.receive(result))

    def tick(self) -> None:
        """Deadlines, and the next sentences of a client that has caught up."""
        self._guard(lambda: self._session.tick(self._limits.sentence_timeout_s, self._limits.idle_timeout_s))

    def resubmit(self) -> None:
        """The job stream was lost."""
        self._guard(self._session.resubmit)

    def _has_room(self) -> bool:
        return len(self._outbox) < ROOM_FOR_SENTENCES

    def _guard(self, step: Callable[[], list[Output]]) -> None:
        """A fault in this connection's session ends this connection, not the hub that serves them all."""
        try:
            self._do(step())
        except Exception:
            log.exception("a session broke")
            self._fail(_HangUp(INTERNAL_ERROR, "a fault of ours; connect again"))

    def _fail(self, hang_up: _HangUp) -> None:
        if not self._failure.done():
            self._failure.set_result(hang_up)

    async def _serve(self) -> None:
        """Read, write and work side by side; the first that ends, ends all."""
        tasks = [asyncio.create_task(step()) for step in (self._listen, self._write, self._carry, self._watch)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self) -> None:
        while True:
            try:
                # Not wait_for: on Python 3.11 it swallows a cancellation that meets an arriving message.
                async with asyncio.timeout(self._limits.idle_timeout_s):
                    event = await self._socket.receive()
            except TimeoutError as error:
                if self._session.keys:
                    continue
                raise _HangUp(POLICY_VIOLATION, "nothing was said for too long") from error
            if event["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(event.get("code", 1005))
            await self._hear(event.get("text"))
            if self._session.abusive:
                raise _HangUp(POLICY_VIOLATION, "too many messages that cannot be read")

    async def _hear(self, raw: str | None) -> None:
        context = None
        try:
            if raw is None:
                raise InvalidMessage("clients send JSON text, no binary frames")
            message = read_message(raw)
            context = message.context
            if isinstance(message, Open):
                self._session.check_open(message)
                self._do(self._session.open(message, await self._find_voice(message.voice)))
            else:
                self._do(self._session.handle(message))
        except RelayError as error:
            # An error that names a context has ended it; one that is open goes on.
            self._do(self._session.refuse(error, None if self._session.holds(context) else context))

    async def _find_voice(self, voice_id: str) -> Voice:
        try:
            voice = await bounded(find_voice(self._database, self._tenant, UUID(voice_id)))
        except ValueError as error:
            raise UnknownVoice(voice_id) from error
        except ServerUnavailable as error:
            log.warning("no voice look-up", reason=str(error))
            raise ServiceUnavailable from error
        if voice is None or voice.state is not VoiceState.READY:
            raise UnknownVoice(voice_id)
        return voice

    def _do(self, outputs: list[Output]) -> None:
        """Queue what the session wants done, in its order; nothing here waits."""
        try:
            for output in outputs:
                match output:
                    case Say() | Play():
                        self._outbox.put(output)
                    case Silence(context=context):
                        self._outbox.drop(context)
                    case Submit(job=job):
                        self._work.put_nowait(job)
                    case Bury(key=key):
                        self._work.put_nowait(key)
        except (OutboxFull, asyncio.QueueFull):
            self._fail(_HangUp(POLICY_VIOLATION, _NOT_READING))
        if self._routed != self._session.keys:
            self._routed = self._session.keys
            self._hub.route(self, self._routed)

    async def _carry(self) -> None:
        while True:
            work = await self._work.get()
            if isinstance(work, Job):
                await self._hub.submit(work)
            else:
                await self._hub.bury(work)

    async def _write(self) -> None:
        while True:
            item = await self._outbox.get()
            try:
                async with asyncio.timeout(self._limits.send_timeout_s):
                    if isinstance(item, Play):
                        await self._socket.send_bytes(item.frame)
                        metrics.SEND_STAGE.observe(self._clock.monotonic() - item.ready_at)
                    else:
                        await self._socket.send_text(json.dumps(item.message))
            except TimeoutError as error:
                raise _HangUp(POLICY_VIOLATION, _NOT_READING) from error

    async def _watch(self) -> None:
        raise await self._failure

    async def _bury_all(self) -> None:
        for output in self._session.close():
            if isinstance(output, Bury):
                await self._hub.bury(output.key)

    async def _close(self, code: int, reason: str) -> None:
        if self._socket.client_state is WebSocketState.DISCONNECTED:
            return
        with suppress(RuntimeError, TimeoutError, WebSocketDisconnect):
            async with asyncio.timeout(self._limits.send_timeout_s):
                await self._socket.close(code, reason)
