"""One connection of the native protocol, sans-I/O: its contexts, and what each message and result does to them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from uuid import UUID, uuid4

from relay.clock import Clock
from relay.entrance.admission import Admission, Place
from relay.entrance.under_way import SAMPLE_RATE
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
from relay.native.messages import Cancel, ClientMessage, End, Flush, Open, Text
from relay.speaking.casting import Role
from relay.speaking.context import Context
from relay.speaking.context_state import Address, ContextState
from relay.speaking.outputs import Output, Say
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
        self,
        relay: str,
        terms: Terms,
        admission: Admission,
        clock: Clock,
        has_room: Callable[[], bool],
        chunk_ms: int = 80,
    ) -> None:
        self._relay = relay
        self._terms = terms
        self._admission = admission
        self._clock = clock
        self._has_room = has_room
        self._chunk_samples = SAMPLE_RATE * chunk_ms // 1000
        self._listener = uuid4().hex
        self._contexts: dict[str, Context] = {}
        self._places: dict[str, Place] = {}
        self._ends_ms: dict[str, float] = {}
        self._numbers = itertools.count(1)
        self._bad_messages = 0

    @property
    def voices(self) -> frozenset[UUID]:
        """The voices of the open contexts."""
        return frozenset(context.address.voice for context in self._contexts.values())

    @property
    def keys(self) -> frozenset[str]:
        """The keys of the open contexts, as results carry them."""
        return frozenset(context.address.key for context in self._contexts.values())

    def holds(self, context: str | None) -> bool:
        """Whether a context of this id is open."""
        return context in self._contexts

    @property
    def abusive(self) -> bool:
        """Whether the client has sent more nonsense than a mistake explains."""
        return self._bad_messages > MAX_BAD_MESSAGES

    def hello(self) -> list[Output]:
        """What the client is told first."""
        message: dict[str, object] = {"type": "hello", "protocol": 1, "sample_rate": SAMPLE_RATE}
        return [Say({**message, "encoding": "pcm_s16le", "channels": 1, "chunk_samples": self._chunk_samples})]

    def check_open(self, message: Open) -> None:
        """Raises ContextExists or Refused before anything is looked up for the message."""
        if message.context in self._contexts:
            raise ContextExists(message.context)
        if len(self._contexts) >= MAX_CONTEXTS:
            raise Refused("too_many_contexts", f"a connection holds at most {MAX_CONTEXTS} contexts; end one first")

    def open(self, message: Open, role: Role) -> list[Output]:
        """Begin a context in a voice that is ready; raises ContextExists, Refused or ServiceUnavailable."""
        self.check_open(message)
        place = self._admission.admit(self._terms.tenant, self._listener, self._terms.contexts)
        self._places[message.context] = place
        address = Address(
            key=uuid4().hex,
            id=message.context,
            number=next(self._numbers),
            relay=self._relay,
            tenant=self._terms.tenant,
            voice=role.speaker.voice,
            version=role.speaker.version,
        )
        expires_at = role.speaker.expires_at
        self._ends_ms[message.context] = math.inf if expires_at is None else 1000 * expires_at.timestamp()
        self._contexts[message.context] = Context(address, self._clock, self._has_room, role.text_hash)
        opened: dict[str, object] = {"type": "opened", "context": address.id, "number": address.number}
        return [Say({**opened, "voice": str(address.voice), "version": address.version})]

    def handle(self, message: ClientMessage) -> list[Output]:
        """Any message but `open`; raises RelayError for one that cannot be followed."""
        context = self._contexts.get(message.context)
        if context is None:
            raise UnknownContext(message.context)
        try:
            return self._settle(context, self._apply(context, message))
        except (TextTooLong, Refused, ServiceUnavailable) as error:
            return self._settle(context, context.fail(error))

    def receive(self, result: Result) -> list[Output]:
        """A worker's result for one of the contexts."""
        return self._each(lambda c: c.receive(result) if c.address.key == result.context else [])

    def tick(self, sentence_timeout_s: float, idle_timeout_s: float) -> list[Output]:
        """Let time pass."""

        def check(context: Context) -> list[Output]:
            if self._ends_ms[context.address.id] <= self._clock.unix_ms():
                return context.fail(_silenced())
            return [*context.pump(), *context.check_progress(sentence_timeout_s, idle_timeout_s)]

        return self._each(check)

    def resubmit(self) -> list[Output]:
        """The stream was lost: hand out again what is under way."""
        return self._each(Context.resubmit_all)

    def silence(self, voice: UUID) -> list[Output]:
        """The voice may not be heard any more: end every context that speaks with it."""
        return self._each(lambda context: context.fail(_silenced()) if context.address.voice == voice else [])

    def refuse(self, error: RelayError, context: str | None = None) -> list[Output]:
        """Tell the client why a message was not followed; the connection goes on."""
        if isinstance(error, InvalidMessage):
            self._bad_messages += 1
        return [Say({"type": "error", **error.as_dict(), "context": context})]

    def close(self) -> list[Output]:
        """The client is gone: stop everything."""
        outputs = self._each(Context.cancel)
        self._admission.leave(self._listener)
        return outputs

    def _apply(self, context: Context, message: ClientMessage) -> list[Output]:
        if isinstance(message, Cancel):
            return context.cancel()
        if context.state is not ContextState.OPEN:
            raise InvalidMessage("the context's text has ended; only `cancel` may follow `end`", field="type")
        match message:
            case Text(text=text):
                self._admission.readmit(self._places[message.context])
                self._terms.reserve(len(text))
                return context.push(text)
            case Flush():
                return context.flush()
            case End():
                return context.end()
        raise InvalidMessage("`open` begins a context, it does not follow one", field="type")

    def _each(self, act: Callable[[Context], Iterable[Output]]) -> list[Output]:
        outputs: list[Output] = []
        for context in list(self._contexts.values()):
            outputs.extend(self._settle(context, act(context)))
        return outputs

    def _settle(self, context: Context, outputs: Iterable[Output]) -> list[Output]:
        """Say how long the context will be heard; free the id and the place of one that has ended."""
        done = list(outputs)
        place = self._places.get(context.address.id)
        if place is not None:
            self._admission.note(place, context.heard_until, context.take_late())
        if place is not None and context.closed:
            del self._contexts[context.address.id], self._places[context.address.id]
            del self._ends_ms[context.address.id]
            self._admission.release(place)
            done.extend(context.note())
        return done


def _silenced() -> SentenceFailed:
    return SentenceFailed("voice_unavailable", _SILENCED, retryable=False)
