"""Where a context is in its life, with its one table of transitions; and who it is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID


class ContextState(StrEnum):
    """Where a context is in its life."""

    OPEN = "open"
    ENDING = "ending"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


TRANSITIONS: dict[ContextState, frozenset[ContextState]] = {
    ContextState.OPEN: frozenset({ContextState.ENDING, ContextState.CANCELLED, ContextState.FAILED}),
    ContextState.ENDING: frozenset({ContextState.DONE, ContextState.CANCELLED, ContextState.FAILED}),
    # For a client that has lost what was sent last, and asks for it again.
    ContextState.DONE: frozenset({ContextState.ENDING}),
    ContextState.CANCELLED: frozenset(),
    ContextState.FAILED: frozenset(),
}

ENDED = frozenset({ContextState.DONE, ContextState.CANCELLED, ContextState.FAILED})


@dataclass(frozen=True, slots=True)
class Address:
    """Who a context is and what it speaks with."""

    key: str
    """Unique over all relays; what jobs and results carry."""
    id: str
    """The client's name for it."""
    number: int
    """Its name in binary frames."""
    relay: str
    tenant: UUID
    voice: UUID
    version: int
