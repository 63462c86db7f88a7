"""One client's contexts, sans-I/O: what each command and result does to them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from uuid import UUID, uuid4

from relay.clock import Clock
from relay.entrance.admission import Admission, Place
from relay.errors import (
    ContextExists,
    InvalidMessage,
    Refused,
    RelayError,
    SentenceFailed,
    ServiceUnavailable,
    TextTooLong,
    UnknownContext,
)
from relay.speaking.casting import Role
from relay.speaking.commands import Cancel, End, Flush, Open, Resume, Text
from relay.speaking.context import Context
from relay.speaking.context_state import Address, ContextState
from relay.speaking.events import Draining, Event, Failed, Opened
from relay.speaking.outputs import Output, Tell
from storage.streams.wire import Result

MAX_CONTEXTS = 16
MAX_BAD_MESSAGES = 32
_SILENCED = "the voice may not be heard any more: it was deleted or disabled, or its consent has ended"


@dataclass(frozen=True, slots=True)
class Terms:
    """Whose a connection is, and how much of the service its tenant has."""

    tenant: UUID
    contexts: int
    """How many contexts it may hold open on one relay process, where that process does not allow fewer."""
    reserve: Callable[[int], None]
    """Takes so many characters off what is left for today; raises Refused."""


@dataclass(slots=True)
class _Held:
    """A context with what goes with it."""

    context: Context
    place: Place
    ends_ms: float
    """When its voice may not be heard any more, in Unix milliseconds."""
    token: str


@dataclass(frozen=True, slots=True)
class Suspended:
    """A context on its way from one connection to another."""

    held: _Held

    @property
    def context(self) -> Context:
        """For whoever has to know where it stands."""
        return self.held.context


class Session:
    """The contexts of one connection; every method returns what is to be done, in order."""

    def __init__(
        self, relay: str, terms: Terms, admission: Admission, clock: Clock, has_room: Callable[[], bool]
    ) -> None:
        self._relay = relay
        self._terms = terms
        self._admission = admission
        self._clock = clock
        self._has_room = has_room
        self._listener = uuid4().hex
        self._contexts: dict[str, _Held] = {}
        self._numbers = itertools.count(1)
        self._bad_messages = 0
        self.keys: frozenset[str] = frozenset()
        """The keys of the open contexts, as results carry them."""

    @property
    def voices(self) -> frozenset[UUID]:
        """The voices of the open contexts."""
        return frozenset(held.context.address.voice for held in self._contexts.values())

    @property
    def tokens(self) -> frozenset[str]:
        """What resumes the open contexts."""
        return frozenset(held.token for held in self._contexts.values())

    def holds(self, context: str | None) -> bool:
        """Whether a context of this id is open."""
        return context in self._contexts

    @property
    def abusive(self) -> bool:
        """Whether the client has sent more nonsense than a mistake explains."""
        return self._bad_messages > MAX_BAD_MESSAGES

    def check_open(self, context: str) -> None:
        """Raises ContextExists or Refused before anything is looked up for a context."""
        if context in self._contexts:
            raise ContextExists(context)
        if len(self._contexts) >= MAX_CONTEXTS:
            raise Refused("too_many_contexts", f"a connection holds at most {MAX_CONTEXTS} contexts; end one first")

    def open(self, command: Open, role: Role) -> list[Output]:
        """Begin a context in a voice that is ready; raises ContextExists, Refused or ServiceUnavailable."""
        self.check_open(command.context)
        place = self._admission.admit(self._terms.tenant, self._listener, self._terms.contexts)
        address = Address(
            key=uuid4().hex,
            id=command.context,
            number=next(self._numbers),
            relay=self._relay,
            tenant=self._terms.tenant,
            voice=role.speaker.voice,
            version=role.speaker.version,
        )
        expires_at = role.speaker.expires_at
        ends_ms = math.inf if expires_at is None else 1000 * expires_at.timestamp()
        context = Context(address, self._clock, self._has_room, role.text_hash, mel=command.mel)
        held = _Held(context, place, ends_ms, uuid4().hex)
        self._hold(held)
        return [Tell(_opened(held, command.manner))]

    def resume(self, command: Resume, suspended: Suspended) -> list[Output]:
        """Go on with a context that another connection has given up; raises nothing that `check_resume` has not."""
        held = suspended.held
        self._admission.move(held.place, self._listener)
        held.token = uuid4().hex
        address = replace(
            held.context.address, key=uuid4().hex, id=command.context, number=next(self._numbers), relay=self._relay
        )
        outputs = held.context.resume(address, self._has_room, command.sentence, command.chunk)
        self._hold(held)
        return [Tell(_opened(held, command.manner)), *self._settle(held, outputs)]

    def check_resume(self, command: Resume, tenant: UUID) -> None:
        """Raises UnknownContext, or UnknownPlace, where a context of this session is not to be resumed so."""
        held = self._find_resumed(command.token)
        if held is None or tenant != self._terms.tenant:
            raise UnknownContext(command.context)
        held.context.check_place(command.sentence, command.chunk)

    def give_up(self, token: str) -> tuple[Suspended, list[Output]]:
        """Let another connection have the context that this token resumes; `check_resume` has found it."""
        held = self._find_resumed(token)
        if held is None:
            raise UnknownContext("")
        outputs = held.context.suspend()
        del self._contexts[held.context.address.id]
        self._count()
        return Suspended(held), outputs

    def suspend(self) -> list[Output]:
        """The connection is lost: workers stop; the contexts wait for whoever resumes them."""
        return self._each(lambda held: held.context.suspend())

    def handle(self, command: Text | Flush | End | Cancel) -> list[Output]:
        """What is said of an open context; raises RelayError for what cannot be followed."""
        held = self._contexts.get(command.context)
        if held is None:
            raise UnknownContext(command.context)
        try:
            return self._settle(held, self._apply(held, command))
        except (TextTooLong, Refused, ServiceUnavailable) as error:
            return self._settle(held, held.context.fail(error))

    def receive(self, result: Result) -> list[Output]:
        """A worker's result for one of the contexts."""
        for held in self._contexts.values():
            if held.context.address.key == result.context:
                return self._settle(held, held.context.receive(result))
        return []

    def tick(self, sentence_timeout_s: float, idle_timeout_s: float) -> list[Output]:
        """Let time pass."""

        def check(held: _Held) -> list[Output]:
            context = held.context
            if held.ends_ms <= self._clock.unix_ms():
                return context.fail(_silenced())
            return [*context.pump(), *context.check_progress(sentence_timeout_s, idle_timeout_s)]

        return self._each(check)

    def resubmit(self) -> list[Output]:
        """The stream was lost: hand out again what is under way."""
        return self._each(lambda held: held.context.resubmit_all())

    def silence(self, voice: UUID) -> list[Output]:
        """The voice may not be heard any more: end every context that speaks with it."""
        return self._each(lambda held: held.context.fail(_silenced()) if held.context.address.voice == voice else [])

    def refuse(self, error: RelayError, context: str | None = None) -> list[Output]:
        """Tell the client why something was not followed; what is open goes on."""
        if isinstance(error, InvalidMessage):
            self._bad_messages += 1
        return [Tell(Failed(context, error, ended=context is not None and not self.holds(context)))]

    def drain(self, within_s: float) -> list[Output]:
        """The relay is going to stop."""
        return [Tell(Draining(within_s))]

    def close(self) -> list[Output]:
        """The client is gone: stop everything."""
        outputs = self._each(lambda held: held.context.cancel())
        self._admission.leave(self._listener)
        return outputs

    def _apply(self, held: _Held, command: Text | Flush | End | Cancel) -> list[Output]:
        context = held.context
        if isinstance(command, Cancel):
            return context.cancel()
        if context.state is not ContextState.OPEN:
            raise InvalidMessage("the context's text has ended; only `cancel` may follow `end`", field="type")
        match command:
            case Text(text=text):
                self._admission.readmit(held.place)
                self._terms.reserve(len(text))
                return context.push(text)
            case Flush():
                return context.flush()
            case End():
                return context.end()

    def _hold(self, held: _Held) -> None:
        self._contexts[held.context.address.id] = held
        self._count()

    def _find_resumed(self, token: str) -> _Held | None:
        return next((held for held in self._contexts.values() if held.token == token), None)

    def _each(self, act: Callable[[_Held], Iterable[Output]]) -> list[Output]:
        outputs: list[Output] = []
        for held in list(self._contexts.values()):
            outputs.extend(self._settle(held, act(held)))
        return outputs

    def _settle(self, held: _Held, outputs: Iterable[Output]) -> list[Output]:
        """Say how long the context will be heard; free the id and the place of one that has ended."""
        done = list(outputs)
        context = held.context
        if self._contexts.get(context.address.id) is not held:
            return done
        self._admission.note(held.place, context.heard_until, context.take_late())
        if context.closed:
            del self._contexts[context.address.id]
            self._count()
            self._admission.release(held.place)
            done.extend(context.note())
        return done

    def _count(self) -> None:
        self.keys = frozenset(held.context.address.key for held in self._contexts.values())


def _opened(held: _Held, manner: object) -> Event:
    address = held.context.address
    return Opened(address.id, address.number, address.voice, address.version, held.token, manner)


def _silenced() -> SentenceFailed:
    return SentenceFailed("voice_unavailable", _SILENCED, retryable=False)
