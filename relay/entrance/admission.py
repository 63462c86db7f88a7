"""The one gate that every context of a relay process passes, whatever door it came in by.

It keeps the places of this relay's listeners, and a view of the workers and of the other relays that is renewed with
every heartbeat; `capacity` decides.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from relay import metrics
from relay.clock import Clock
from relay.entrance.capacity import (
    RETRY_AFTER_MS,
    Demand,
    Grounds,
    Supply,
    judge,
    next_ceiling,
    next_duty,
)
from relay.errors import Refused, ServiceUnavailable
from storage.streams.presence import RelayDemand, WorkerLoad

MEMORY_S = 30.0
"""How long after its last audio a conversation is expected to speak again."""
PROMISE_S = 2.0
"""How long a context that was opened counts as speaking before it has said anything."""
STALE_S = 6.0
"""Above this age the view of the workers is worth nothing: Redis is away."""
_JITTER = 0.25
_NEVER = -math.inf


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a relay process holds at most."""

    max_contexts: int
    max_tenant_contexts: int
    max_queue: int


@dataclass(slots=True, eq=False)
class Place:
    """A context's place; when the context has ended, the conversation's until it is forgotten."""

    tenant: UUID
    listener: str
    taken: bool = True
    streams: int = 1
    """How many at real time it takes while it speaks: one that is heard faster takes as many more."""
    promised_until: float = _NEVER
    """Until when it counts as speaking although it has not said anything yet."""
    heard_until: float = _NEVER
    """When its listener has heard everything; infinite while sentences are under way."""

    @property
    def speaks_until(self) -> float:
        """When its stream is free."""
        return max(self.promised_until, self.heard_until)

    def is_alive(self, now: float) -> bool:
        """Whether the conversation goes on, or may."""
        return self.speaks_until + MEMORY_S >= now


@dataclass(frozen=True, slots=True)
class View:
    """The workers and the other relays, as Redis showed them."""

    seen_at: float = _NEVER
    supply: Supply = field(default_factory=Supply)
    others: Demand = field(default_factory=Demand)
    relays: int = 1
    queue_lag: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """Supply and demand of the whole service, as this relay knows them."""

    view: View
    total: Demand
    ceiling: float
    fresh: bool
    """False when the view is too old to admit anybody by it."""


class Admission:
    """Places, and who gets the next one; `relay` is this process's name among the relays."""

    def __init__(self, relay: str, clock: Clock, bounds: Bounds, chance: Callable[[], float] = random.random) -> None:
        self._relay = relay
        self._clock = clock
        self._bounds = bounds
        self._chance = chance
        self._places: list[Place] = []
        self._view = View()
        self._fresh = Demand()
        self._late = 0
        self._duty = 1.0
        self._ceiling = 0.0

    @property
    def workers(self) -> int:
        """How many workers are there, as far as this relay knows."""
        return self._view.supply.workers

    def describe(self) -> Standing:
        """How things stand now, for the operator."""
        now = self._clock.monotonic()
        fresh = now - self._view.seen_at <= STALE_S
        return Standing(self._view, self._sum(now).plus(self._view.others), self._ceiling, fresh)

    def admit(self, tenant: UUID, listener: str, tenant_contexts: int | None = None, *, speed: float = 1.0) -> Place:
        """Take a place for a context of a listener (a connection); raises Refused or ServiceUnavailable.

        `tenant_contexts` is the tenant's own limit of contexts; it counts where it is lower than the relay's.
        """
        now = self._clock.monotonic()
        self._check_bounds(tenant, tenant_contexts)
        place = self._find_kept(listener, now)
        self._check_capacity(now, place)
        if place is None:
            place = Place(tenant, listener)
            self._places.append(place)
        place.taken = True
        place.streams = max(1, round(speed))
        place.promised_until = now + PROMISE_S
        self._count()
        return place

    def readmit(self, place: Place) -> None:
        """Before a context speaks again: one that was silent for long is a newcomer. Raises as `admit` does."""
        now = self._clock.monotonic()
        if not place.is_alive(now):
            self._check_capacity(now, None)
            place.promised_until = now + PROMISE_S

    def note(self, place: Place, heard_until: float, late: int) -> None:
        """How long a context's listener has something to hear, and how often more came late since the last time."""
        place.heard_until = heard_until
        self._late += late

    def move(self, place: Place, listener: str) -> None:
        """The context goes on over another connection, and its conversation with it."""
        place.listener = listener

    def release(self, place: Place) -> None:
        """A context has ended; a conversation that spoke is remembered, as long as its connection lasts."""
        place.taken = False
        place.promised_until = _NEVER
        if not place.is_alive(self._clock.monotonic()):
            self._forget([place])
        self._count()

    def leave(self, listener: str) -> None:
        """A connection has ended, and all its conversations with it."""
        self._forget([place for place in self._places if place.listener == listener])
        self._count()

    def demand(self) -> RelayDemand:
        """What this relay's listeners ask for, and how often they had to wait since this was asked last."""
        mine, late, self._late = self._sum(self._clock.monotonic()), self._late, 0
        return RelayDemand(mine.speaking, mine.conversations, late)

    def observe(
        self, workers: Mapping[str, WorkerLoad | None], relays: Mapping[str, RelayDemand], mine: RelayDemand, lag: int
    ) -> None:
        """A heartbeat's news: the workers, every relay's demand, what `demand` gave just now, and the jobs waiting."""
        now = self._clock.monotonic()
        supply = Supply.of(workers.values())
        others = [demand for name, demand in relays.items() if name != self._relay]
        total = Demand.of([*others, mine])
        elapsed = min(now - self._view.seen_at, STALE_S)
        late = mine.late + sum(demand.late for demand in others)
        if self._view.supply.capacity != supply.capacity and self._ceiling >= self._view.supply.capacity:
            self._ceiling = supply.capacity
        self._ceiling = next_ceiling(self._ceiling, supply.capacity, total.speaking, late, elapsed)
        self._duty = next_duty(self._duty, total, elapsed)
        self._view = View(now, supply, Demand.of(others), len(others) + 1, lag)
        self._fresh = Demand()
        self._forget([place for place in self._places if not place.taken and not place.is_alive(now)])
        metrics.show_admission(supply.capacity, self._ceiling, total.speaking, total.conversations, self._duty)

    def _check_bounds(self, tenant: UUID, tenant_contexts: int | None) -> None:
        taken = [place for place in self._places if place.taken]
        held = sum(place.tenant == tenant for place in taken)
        most = self._bounds.max_tenant_contexts
        if held >= (most if tenant_contexts is None else min(most, tenant_contexts)):
            raise Refused("too_many_contexts", f"you have {held} contexts open here, the most allowed; end one first")
        if len(taken) >= self._bounds.max_contexts:
            raise self._refuse(Grounds.HELD)

    def _find_kept(self, listener: str, now: float) -> Place | None:
        kept = (place for place in self._places if place.listener == listener and not place.taken)
        return next((place for place in kept if place.is_alive(now)), None)

    def _check_capacity(self, now: float, kept: Place | None) -> None:
        """`kept` is the place of the conversation that goes on, if one does."""
        view = self._view
        if now - view.seen_at > STALE_S:
            if view.seen_at == _NEVER:
                raise self._refuse(Grounds.NO_WORKER)
            raise ServiceUnavailable
        # The other relays have taken newcomers since they were last heard of: as many as this one, it is assumed.
        mine = self._sum(now, without=kept)
        total = mine.plus(view.others).plus(self._fresh, view.relays - 1)
        grounds = judge(view.supply, total, ceiling=self._ceiling, duty=self._duty, known=kept is not None)
        if grounds is None and view.queue_lag > self._bounds.max_queue:
            grounds = Grounds.QUEUE
        if grounds is not None:
            raise self._refuse(grounds)
        self._fresh = self._fresh.plus(Demand(1, int(kept is None)))

    def _refuse(self, grounds: Grounds) -> Refused:
        metrics.REFUSED.labels(grounds.name.lower()).inc()
        # Spread, so that those who were turned away together do not come back together.
        wait = round(RETRY_AFTER_MS[grounds] * (1.0 + _JITTER * (2.0 * self._chance() - 1.0)))
        return Refused("overloaded", f"{grounds}; try again in {max(round(wait / 1000), 1)} s", retry_after_ms=wait)

    def _sum(self, now: float, without: Place | None = None) -> Demand:
        """This relay's demand; where a conversation goes on, what it still hears is not counted beside what follows."""
        return Demand(
            sum(place.streams for place in self._places if place is not without and place.speaks_until > now),
            sum(place.is_alive(now) for place in self._places),
        )

    def _forget(self, gone: list[Place]) -> None:
        names = set(map(id, gone))
        self._places = [place for place in self._places if id(place) not in names]

    def _count(self) -> None:
        metrics.CONTEXTS.set(sum(place.taken for place in self._places))
