"""One client's contexts in the running relay, whatever door it came in by: a Session on one side, the hub, the watch
over keys and voices, the quotas and the record on the other, and an outbox that a door empties.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self
from uuid import UUID

import structlog

from relay.clock import Clock
from relay.doors.errands import Errands
from relay.doors.face import Close
from relay.doors.ledger import Ledger
from relay.doors.limits import Limits
from relay.doors.outbox import ROOM_FOR_SENTENCES, Outbox, OutboxFull
from relay.doors.resumption import Resumable
from relay.entrance.gate import Gate
from relay.entrance.visitors import HangUp, Visitor
from relay.errors import Refused, RelayError
from relay.speaking.commands import Command, Leave, Open, Refuse, Resume
from relay.speaking.holding import Kept
from relay.speaking.hub import Hub
from relay.speaking.outputs import Bury, Note, Output, Silence, Submit, Tell
from relay.speaking.session import Session, Terms
from storage.streams.wire import Result

log = structlog.get_logger()

POLICY_VIOLATION = 1008
INTERNAL_ERROR = 1011
SERVICE_RESTART = 1012
RESTART_MS = 1000
CUT_OFF_S = 0.5
"""How long one who may not be here any more is waited for until he has read that he is sent away."""
NOT_READING = "the client does not read what it is sent"
FAULT = "a fault of ours; connect again"
_LAST_CONTEXTS_S = 60.0
_KEPT_S = 60.0
"""How long a context that is done can be resumed: both sides may need as long to see that a connection is lost."""
_LINGER_STEP_S = 0.05
_EXPIRED = "the API key has expired; connect with another"
_NONSENSE = "too many messages that cannot be read"
_RESTARTS = "the relay restarts: connect again"
_OLD = "this connection has lived long enough: connect again"


class Conversation:
    """A Listener to the hub, Watched to the watch; joined to both while it is entered.

    `forget` drops what a door keeps of a context's audio behind the outbox, and says how many samples that were.
    """

    def __init__(
        self,
        visitor: Visitor,
        hub: Hub,
        gate: Gate,
        clock: Clock,
        limits: Limits,
        resumable: Resumable,
        forget: Callable[[int], int] | None = None,
    ) -> None:
        self.visitor = visitor
        self.expires_at = visitor.expires_at
        self.limits = limits
        self.clock = clock
        self.outbox = Outbox()
        self.ending: asyncio.Future[HangUp] = asyncio.get_running_loop().create_future()
        """Set when the connection has to be ended from our side."""
        self.on_tick: Callable[[], None] | None = None
        """Called every quarter of a second, for a door that has times of its own."""
        self._hub = hub
        self._gate = gate
        self._resumable = resumable
        self._forget = forget
        terms = Terms(visitor.tenant, visitor.limits.contexts, self._reserve)
        self.session = Session(hub.relay, terms, hub.admission, clock, self._has_room)
        self._ledger = Ledger(visitor, gate.notes, clock)
        self._errands = Errands(hub, lambda: self.hang_up(HangUp(INTERNAL_ERROR, FAULT)))
        self._routed: frozenset[str] = frozenset()
        self._leaving: Close | None = None
        self._left = False
        self._born_at = clock.monotonic()

    async def __aenter__(self) -> Self:
        self._hub.join(self)
        self._gate.watch.join(self, self.visitor.came_at)
        self._errands.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hub.leave(self)
        self._gate.watch.leave(self)
        self._resumable.keep(self, frozenset())
        await self._end_all()
        await self._errands.end()

    async def follow(self, command: Command) -> None:
        """Do what the client wants; what cannot be done is told to it in its turn."""
        try:
            match command:
                case Open() | Resume() if self._leaving is not None:
                    reason = self._leaving.reason or "this connection is about to end"
                    raise Refused("overloaded", reason, retry_after_ms=RESTART_MS)
                case Open():
                    self.session.check_open(command.context)
                    role = await self._gate.casting.cast(self.tenant, command.voice)
                    self._do(self.session.open(command, role))
                case Resume():
                    self._resume(command)
                case _:
                    self.act(command)
        except RelayError as error:
            self._refuse(error, command.context if not isinstance(command, Leave) else None)

    def act(self, command: Command) -> None:
        """The same for a command that needs nothing looked up."""
        try:
            match command:
                case Refuse():
                    self._refuse(command.error, command.context)
                case Leave():
                    self.leave(Close(command.code, command.reason))
                case Open() | Resume():
                    raise TypeError("begins a context: follow it")
                case _:
                    self._do(self.session.handle(command))
        except RelayError as error:
            self._refuse(error, command.context if not isinstance(command, Leave) else None)

    def leave(self, close: Close) -> None:
        """Hang up as soon as no context is open any more."""
        self._leaving = close
        self._do([])

    def keep_done(self) -> None:
        """From now on a context that is done can be resumed for some time, as one that is open can."""
        self.session.kept = Kept()

    async def linger(self) -> None:
        """The client's connection is lost: wait until it has taken its contexts to another, or has not come back."""
        self._do(self.session.suspend())
        loop = asyncio.get_running_loop()
        until = loop.time() + self.limits.resume_window_s
        # Its contexts leave one by one, or end by themselves; nobody calls.
        while self._is_waited_for(loop.time(), until):  # noqa: ASYNC110
            await asyncio.sleep(_LINGER_STEP_S)

    def receive(self, result: Result) -> None:
        """Results go straight through the session into the outbox."""
        self._guard(lambda: self.session.receive(result))

    @property
    def key_id(self) -> UUID:
        """The key that opened it."""
        return self.visitor.key_id

    @property
    def tenant(self) -> UUID:
        """Whose it is."""
        return self.visitor.tenant

    @property
    def voices(self) -> frozenset[UUID]:
        """The voices of its open contexts."""
        return self.session.voices

    def cut_off(self, reason: str) -> None:
        """Whoever is here may not be any more."""
        self.hang_up(HangUp(POLICY_VIOLATION, reason, patience_s=CUT_OFF_S))

    def silence(self, voice: UUID) -> None:
        """Contexts with this voice end."""
        self._guard(lambda: self.session.silence(voice))

    def tick(self) -> None:
        """Deadlines, and the next sentences of a client that has caught up."""
        if self.expires_at is not None and self.expires_at.timestamp() * 1000 <= self.clock.unix_ms():
            self.cut_off(_EXPIRED)
        age_s = self.clock.monotonic() - self._born_at
        if age_s > self.limits.life_s and self._leaving is None:
            self._leave_soon(_LAST_CONTEXTS_S, _OLD)
        if age_s > self.limits.life_s + _LAST_CONTEXTS_S:
            self._guard(lambda: self.session.stop(_OLD))
        self._guard(lambda: self.session.tick(self.limits.sentence_timeout_s, self.limits.idle_timeout_s))
        if self.session.kept is not None and self.session.kept.forget(self.clock.monotonic() - _KEPT_S):
            self._resumable.keep(self, self.session.tokens)
        if self.on_tick is not None:
            self.on_tick()

    def resubmit(self) -> None:
        """The job stream was lost."""
        self._guard(self.session.resubmit)

    def drain(self, within_s: float) -> None:
        """The relay is going to stop: what has begun is finished, if it is within this time."""
        if within_s > 0 or self._leaving is None:
            self._leave_soon(within_s, _RESTARTS)
        if within_s <= 0:
            self._guard(lambda: self.session.stop(_RESTARTS))

    def hang_up(self, ending: HangUp) -> None:
        """End the connection now."""
        if not self.ending.done():
            self.ending.set_result(ending)

    def _is_waited_for(self, now: float, until: float) -> bool:
        return bool(self.session.tokens) and now < until and not self.ending.done() and self._leaving is None

    def _leave_soon(self, within_s: float, reason: str) -> None:
        self._guard(lambda: self.session.drain(within_s))
        self.leave(Close(SERVICE_RESTART, reason))

    def _resume(self, command: Resume) -> None:
        owner = self._resumable.find(command.token, self.tenant)
        suspended, outputs = self.session.take_over(command, owner.session)
        owner._do(outputs)
        self._do(self.session.resume(command, suspended))
        owner._resumable.keep(owner, owner.session.tokens)

    def _refuse(self, error: RelayError, context: str | None) -> None:
        self._do(self.session.refuse(error, context))
        if self.session.abusive:
            self.hang_up(HangUp(POLICY_VIOLATION, _NONSENSE))

    def _has_room(self) -> bool:
        return len(self.outbox) < ROOM_FOR_SENTENCES

    def _reserve(self, characters: int) -> None:
        visitor = self.visitor
        self._gate.quotas.reserve(visitor.tenant, visitor.limits.characters_per_day, characters)

    def _guard(self, step: Callable[[], list[Output]]) -> None:
        """A fault in this connection's session ends this connection, not the hub that serves them all."""
        try:
            self._do(step())
        except Exception:
            log.exception("a session broke")
            self.hang_up(HangUp(INTERNAL_ERROR, FAULT))

    def _do(self, outputs: list[Output]) -> None:
        """Queue what the session wants done, in its order; nothing here waits."""
        try:
            for output in outputs:
                self._queue(output)
            if self._leaving is not None and not self._left and not self.session.keys:
                self._left = True
                self.outbox.put(self._leaving)
        except (OutboxFull, asyncio.QueueFull):
            self.hang_up(HangUp(POLICY_VIOLATION, NOT_READING))
        if self._routed != self.session.keys:
            self._routed = self.session.keys
            self._hub.route(self, self._routed)
            self._resumable.keep(self, self.session.tokens)

    def _queue(self, output: Output) -> None:
        match output:
            case Tell(event=event):
                self.outbox.put(event)
            case Silence(context=context):
                self._drop(context)
            case Note():
                self._ledger.note(output)
            case Submit(job=job):
                self._errands.put(job)
            case Bury(key=key):
                self._errands.put(key)

    def _drop(self, context: int) -> None:
        """What is not sent yet will not be heard, and is not to be noted."""
        behind = 0 if self._forget is None else self._forget(context)
        self._ledger.leave_out(context, self.outbox.drop(context) + behind)

    async def _end_all(self) -> None:
        """The contexts end with their connection: what they have spoken is noted, workers are stopped."""
        keys = []
        for output in self.session.close():
            match output:
                case Silence(context=context):
                    self._drop(context)
                case Note():
                    self._ledger.note(output)
                case Bury(key=key):
                    keys.append(key)
        await asyncio.gather(*map(self._hub.bury, keys))
