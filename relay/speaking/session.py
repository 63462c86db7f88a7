"""One client's contexts, sans-I/O: what each command and result does to them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from uuid import UUID, uuid4

from relay.clock import Clock
from relay.entrance.admission import Admission
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
from relay.speaking.holding import Held, Kept, Suspended
from relay.speaking.outputs import Output, Silence, Tell
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
        self._contexts: dict[str, Held] = {}
        self._numbers = itertools.count(1)
        self._bad_messages = 0
        self.kept: Kept | None = None
        """Where contexts that are done can be resumed: the last of them."""
        self.keys: frozenset[str] = frozenset()
        """The keys of the open contexts, as results carry them."""

    @property
    def voices(self) -> frozenset[UUID]:
        """The voices of the open contexts."""
        open_ones = frozenset(held.context.address.voice for held in self._contexts.values())
        return open_ones if self.kept is None else open_ones | self.kept.voices

    @property
    def tokens(self) -> frozenset[str]:
        """What resumes contexts of this connection."""
        open_ones = frozenset(held.token for held in self._contexts.values())
        return open_ones if self.kept is None else open_ones | self.kept.tokens

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
        place = self._admission.admit(self._terms.tenant, self._listener, self._terms.contexts, speed=command.speed)
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
        context = Context(address, self._clock, self._has_room, role.text_hash, mel=command.mel, speed=command.speed)
        held = Held(context, place, ends_ms, uuid4().hex)
        self._hold(held)
        return [Tell(_opened(held, command.manner))]

    def resume(self, command: Resume, suspended: Suspended) -> list[Output]:
        """Go on with a context that another connection has given up, when `take_over` has found room for it."""
        held = suspended.held
        held.token = uuid4().hex
        address = replace(
            held.context.address, key=uuid4().hex, id=command.context, number=next(self._numbers), relay=self._relay
        )
        outputs = held.context.resume(address, self._has_room, command.sentence, command.chunk, speed=command.speed)
        self._hold(held)
        return [Tell(_opened(held, command.manner)), *self._settle(held, outputs)]

    def take_over(self, command: Resume, owner: Session) -> tuple[Suspended, list[Output]]:
        """Have a context of another connection's given up; the outputs are that one's.

        Raises UnknownContext, UnknownPlace, ContextExists, Refused or ServiceUnavailable; then all is as it was.
        """
        self.check_open(command.context)
        held = owner._find_resumed(command.token)
        if held is None or owner._terms.tenant != self._terms.tenant:
            raise UnknownContext(command.context)
        held.context.check_place(command.sentence, command.chunk)
        if held.context.closed:
            # Its old place may be another context's by now.
            held.place = self._admission.admit(
                self._terms.tenant, self._listener, self._terms.contexts, speed=command.speed
            )
        else:
            self._admission.move(held.place, self._listener)
        return Suspended(held), owner._give_up(held)

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

        def check(held: Held) -> list[Output]:
            context = held.context
            if held.ends_ms <= self._clock.unix_ms():
                return context.silence(_silenced())
            return [*context.pump(), *context.check_progress(sentence_timeout_s, idle_timeout_s)]

        return self._each(check)

    def resubmit(self) -> list[Output]:
        """The stream was lost: hand out again what is under way."""
        return self._each(lambda held: held.context.resubmit_all())

    def silence(self, voice: UUID) -> list[Output]:
        """The voice may not be heard any more: end every context that speaks with it."""
        if self.kept is not None:
            self.kept.silence(voice)
        return self._each(lambda held: held.context.silence(_silenced()) if held.context.address.voice == voice else [])

    def refuse(self, error: RelayError, context: str | None = None) -> list[Output]:
        """Tell the client why something was not followed; what is open goes on."""
        if isinstance(error, InvalidMessage):
            self._bad_messages += 1
        return [Tell(Failed(context, error, ended=context is not None and not self.holds(context)))]

    def drain(self, within_s: float) -> list[Output]:
        """The relay is going to stop."""
        return [Tell(Draining(within_s))]

    def stop(self, reason: str) -> list[Output]:
        """End all that is not spoken, without waiting for it."""
        interrupted = SentenceFailed("interrupted", reason, retryable=True)
        return self._each(lambda held: held.context.fail(interrupted))

    def close(self) -> list[Output]:
        """The client is gone: stop everything."""
        outputs = self._each(lambda held: held.context.cancel())
        self.kept = None
        self._admission.leave(self._listener)
        return outputs

    def _apply(self, held: Held, command: Text | Flush | End | Cancel) -> list[Output]:
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

    def _hold(self, held: Held) -> None:
        self._contexts[held.context.address.id] = held
        self._count()

    def _find_resumed(self, token: str) -> Held | None:
        open_ones = (held for held in self._contexts.values() if held.token == token)
        return next(open_ones, None if self.kept is None else self.kept.find(token))

    def _give_up(self, held: Held) -> list[Output]:
        """Another connection has it from now on."""
        if self.kept is not None:
            self.kept.take(held.token)
        if held.context.closed:
            return [Silence(held.context.address.number)]
        context = held.context
        outputs = context.suspend()
        del self._contexts[context.address.id]
        self._count()
        moved = SentenceFailed("resumed", "the context goes on over another connection", retryable=False)
        return [*outputs, Tell(Failed(context.address.id, moved))]

    def _each(self, act: Callable[[Held], Iterable[Output]]) -> list[Output]:
        outputs: list[Output] = []
        for held in list(self._contexts.values()):
            outputs.extend(self._settle(held, act(held)))
        return outputs

    def _settle(self, held: Held, outputs: Iterable[Output]) -> list[Output]:
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
            done.extend([] if held.noted else context.note())
            held.noted = True
            if self.kept is not None and context.state is ContextState.DONE:
                self.kept.add(held, self._clock.monotonic())
        return done

    def _count(self) -> None:
        self.keys = frozenset(held.context.address.key for held in self._contexts.values())


def _opened(held: Held, manner: object) -> Event:
    address = held.context.address
    context = held.context
    ended = context.state is not ContextState.OPEN
    return Opened(
        context=address.id,
        number=address.number,
        voice=address.voice,
        version=address.version,
        resume=held.token,
        manner=manner,
        characters=context.characters,
        ended=ended,
    )


def _silenced() -> SentenceFailed:
    return SentenceFailed("voice_unavailable", _SILENCED, retryable=False)
