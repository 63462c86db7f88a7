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
from relay.entrance.gate import Gate
from relay.entrance.under_way import SAMPLE_RATE
from relay.entrance.visitors import HangUp, Visitor
from relay.errors import InvalidMessage, RelayError
from relay.native.messages import Open, read_message
from relay.native.outbox import ROOM_FOR_SENTENCES, Outbox, OutboxFull
from relay.speaking.hub import Hub
from relay.speaking.outputs import Bury, Note, Output, Play, Say, Silence, Submit
from relay.speaking.session import Session, Terms
from storage.streams.speech_log import Spoken
from storage.streams.wire import Job, Result

log = structlog.get_logger()

POLICY_VIOLATION = 1008
INTERNAL_ERROR = 1011
_WORK_CAPACITY = 1024
_CUT_OFF_S = 0.5
"""How long one who may not be here any more is waited for until he has read that he is sent away."""
_NOT_READING = "the client does not read what it is sent"
_EXPIRED = "the API key has expired; connect with another"


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a connection may keep others waiting, and how long its chunks are."""

    send_timeout_s: float
    idle_timeout_s: float
    sentence_timeout_s: float
    chunk_ms: int = 80


class Connection:
    """One client: a Listener to the hub, Watched to the watch; `run` returns when the connection has ended."""

    def __init__(self, socket: WebSocket, visitor: Visitor, hub: Hub, gate: Gate, clock: Clock, limits: Limits) -> None:
        self._socket = socket
        self._visitor = visitor
        self.expires_at = visitor.expires_at
        self._hub = hub
        self._gate = gate
        self._limits = limits
        self._clock = clock
        self._outbox = Outbox()
        terms = Terms(visitor.tenant, visitor.limits.contexts, self._reserve)
        self._session = Session(hub.relay, terms, hub.admission, clock, self._has_room, limits.chunk_ms)
        self._unheard: dict[int, int] = {}
        self._work: asyncio.Queue[Job | str] = asyncio.Queue(_WORK_CAPACITY)
        self._routed: frozenset[str] = frozenset()
        self._failure: asyncio.Future[HangUp] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Speak with the client until either side ends it."""
        self._hub.join(self)
        self._gate.watch.join(self, self._visitor.came_at)
        ending = HangUp(1000, "")
        try:
            self._do(self._session.hello())
            await self._serve()
        except HangUp as hang_up:
            ending = hang_up
        except WebSocketDisconnect:
            pass
        except Exception:
            log.exception("a connection broke")
            ending = HangUp(INTERNAL_ERROR, "a fault of ours; connect again")
        finally:
            self._hub.leave(self)
            self._gate.watch.leave(self)
            # Side by side: when Redis is away, a client is told no later for it.
            await asyncio.gather(self._close(ending), self._end_all())

    def receive(self, result: Result) -> None:
        """Results go straight through the session into the outbox."""
        self._guard(lambda: self._session.receive(result))

    @property
    def key_id(self) -> UUID:
        """The key that opened it."""
        return self._visitor.key_id

    @property
    def tenant(self) -> UUID:
        """Whose it is."""
        return self._visitor.tenant

    @property
    def voices(self) -> frozenset[UUID]:
        """The voices of its open contexts."""
        return self._session.voices

    def cut_off(self, reason: str) -> None:
        """Whoever is here may not be any more."""
        self._fail(HangUp(POLICY_VIOLATION, reason, patience_s=_CUT_OFF_S))

    def silence(self, voice: UUID) -> None:
        """Contexts with this voice end."""
        self._guard(lambda: self._session.silence(voice))

    def tick(self) -> None:
        """Deadlines, and the next sentences of a client that has caught up."""
        if self.expires_at is not None and self.expires_at.timestamp() * 1000 <= self._clock.unix_ms():
            self.cut_off(_EXPIRED)
        self._guard(lambda: self._session.tick(self._limits.sentence_timeout_s, self._limits.idle_timeout_s))

    def resubmit(self) -> None:
        """The job stream was lost."""
        self._guard(self._session.resubmit)

    def _has_room(self) -> bool:
        return len(self._outbox) < ROOM_FOR_SENTENCES

    def _reserve(self, characters: int) -> None:
        visitor = self._visitor
        self._gate.quotas.reserve(visitor.tenant, visitor.limits.characters_per_day, characters)

    def _guard(self, step: Callable[[], list[Output]]) -> None:
        """A fault in this connection's session ends this connection, not the hub that serves them all."""
        try:
            self._do(step())
        except Exception:
            log.exception("a session broke")
            self._fail(HangUp(INTERNAL_ERROR, "a fault of ours; connect again"))

    def _fail(self, hang_up: HangUp) -> None:
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
                raise HangUp(POLICY_VIOLATION, "nothing was said for too long") from error
            if event["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(event.get("code", 1005))
            await self._hear(event.get("text"))
            if self._session.abusive:
                raise HangUp(POLICY_VIOLATION, "too many messages that cannot be read")

    async def _hear(self, raw: str | None) -> None:
        context = None
        try:
            if raw is None:
                raise InvalidMessage("clients send JSON text, no binary frames")
            message = read_message(raw)
            context = message.context
            if isinstance(message, Open):
                self._session.check_open(message)
                self._do(self._session.open(message, await self._gate.casting.cast(self.tenant, message.voice)))
            else:
                self._do(self._session.handle(message))
        except RelayError as error:
            # An error that names a context has ended it; one that is open goes on.
            self._do(self._session.refuse(error, None if self._session.holds(context) else context))

    def _do(self, outputs: list[Output]) -> None:
        """Queue what the session wants done, in its order; nothing here waits."""
        try:
            for output in outputs:
                match output:
                    case Say() | Play():
                        self._outbox.put(output)
                    case Silence(context=context):
                        self._drop(context)
                    case Note():
                        self._note(output)
                    case Submit(job=job):
                        self._work.put_nowait(job)
                    case Bury(key=key):
                        self._work.put_nowait(key)
        except (OutboxFull, asyncio.QueueFull):
            self._fail(HangUp(POLICY_VIOLATION, _NOT_READING))
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
                raise HangUp(POLICY_VIOLATION, _NOT_READING) from error

    async def _watch(self) -> None:
        raise await self._failure

    def _drop(self, context: int) -> None:
        """What is not sent yet will not be heard, and is not to be noted."""
        if samples := self._outbox.drop(context):
            self._unheard[context] = samples

    def _note(self, note: Note) -> None:
        samples = note.samples - self._unheard.pop(note.context, 0)
        spoken = Spoken(
            tenant=self.tenant,
            voice=note.voice,
            version=note.version,
            key_id=self.key_id,
            origin=self._visitor.origin,
            context=note.key,
            sentences=note.sentences,
            characters=note.characters,
            audio_ms=1000 * samples // SAMPLE_RATE,
            text_hmac=note.text_hmac,
            at_ms=self._clock.unix_ms(),
        )
        self._gate.notes.put(spoken)

    async def _end_all(self) -> None:
        """The contexts end with their connection: what they have spoken is noted, workers are stopped."""
        keys = []
        for output in self._session.close():
            match output:
                case Silence(context=context):
                    self._drop(context)
                case Note():
                    self._note(output)
                case Bury(key=key):
                    keys.append(key)
        await asyncio.gather(*map(self._hub.bury, keys))

    async def _close(self, ending: HangUp) -> None:
        if self._socket.client_state is WebSocketState.DISCONNECTED:
            return
        patience_s = self._limits.send_timeout_s if ending.patience_s is None else ending.patience_s
        with suppress(RuntimeError, TimeoutError, WebSocketDisconnect):
            async with asyncio.timeout(patience_s):
                await self._socket.close(ending.code, ending.reason)
