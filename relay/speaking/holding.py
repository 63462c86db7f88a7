"""What a connection holds of each of its contexts, those that are open and those that ended a moment ago."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from uuid import UUID

from relay.entrance.admission import Place
from relay.speaking.context import Context

MAX_KEPT = 16


@dataclass(slots=True)
class Held:
    """A context with what goes with it."""

    context: Context
    place: Place
    ends_ms: float
    """When its voice may not be heard any more, in Unix milliseconds."""
    token: str
    noted: bool = False
    """Whether it is on record; one that is spoken again for a client that missed its end is so once."""


@dataclass(frozen=True, slots=True)
class Suspended:
    """A context on its way from one connection to another."""

    held: Held

    @property
    def context(self) -> Context:
        """For whoever has to know where it stands."""
        return self.held.context


class Kept:
    """The last contexts that were done: what was sent last may not have arrived, and is asked for again."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, tuple[float, Held]] = OrderedDict()

    @property
    def tokens(self) -> frozenset[str]:
        """What resumes them."""
        return frozenset(self._held)

    @property
    def voices(self) -> frozenset[UUID]:
        """Whom they were spoken by."""
        return frozenset(held.context.address.voice for _, held in self._held.values())

    def find(self, token: str) -> Held | None:
        """The one of this token."""
        found = self._held.get(token)
        return None if found is None else found[1]

    def add(self, held: Held, now: float) -> None:
        """One more; the oldest is forgotten for it."""
        self._held[held.token] = (now, held)
        if len(self._held) > MAX_KEPT:
            self._held.popitem(last=False)

    def take(self, token: str) -> None:
        """It goes on elsewhere."""
        self._held.pop(token, None)

    def forget(self, before: float) -> bool:
        """Those that ended before a time; whether there were any."""
        count = len(self._held)
        while self._held and next(iter(self._held.values()))[0] < before:
            self._held.popitem(last=False)
        return len(self._held) < count

    def silence(self, voice: UUID) -> None:
        """Those of a voice that may not be heard any more."""
        for token in [token for token, (_, held) in self._held.items() if held.context.address.voice == voice]:
            del self._held[token]
