"""Whether one more listener can be taken without breaking what those who listen were promised. Values in, verdict out.

Voice agents are silent more than half of the time, so places are lent by demand: `speaking` counts who hears or waits
for audio now, `conversations` who may speak again at any moment. A conversation that goes on may use every stream there
is; a newcomer is taken only if all conversations together, his among them, are expected to need no more. Where those
who listen were let down although the workers had promised more, fewer streams are lent for a while.
That is trunk reservation as mobile networks use it for calls that move between cells (Hong and Rappaport, IEEE Trans.
Vehicular Technology 35(3), 1986).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from storage.streams.presence import RelayDemand, WorkerLoad

SPREAD = 2.33
"""Standard deviations above the mean: a normal value stays below in 99 of 100 cases."""
DUTY_MEMORY_S = 30.0
MIN_DUTY = 0.1
BACK_OFF = 0.9
FEWEST_LATE = 2
LATE_SHARE = 0.1
"""Fewer late chunks between two heartbeats than this share of those who speak are an accident."""
RECOVERY_PER_S = 0.02
LOWEST_SHARE = 0.25
"""Below this share of what the workers announce, lateness has other reasons than the number of listeners."""
SATURATED = 0.97


class Grounds(StrEnum):
    """Why a context is refused."""

    NO_WORKER = "no worker is ready to speak"
    QUEUE = "the workers have fallen behind"
    HELD = "this relay holds as many contexts as it may"
    FULL = "every voice that the workers can carry is speaking"
    RESERVED = "the workers' voices are needed by the conversations that are going on"


RETRY_AFTER_MS: dict[Grounds, int] = {
    Grounds.NO_WORKER: 2000,
    Grounds.QUEUE: 1000,
    Grounds.HELD: 3000,
    Grounds.FULL: 1000,
    Grounds.RESERVED: 3000,
}
"""When it may be worth trying again: a stream is free when a sentence ends, a conversation takes longer."""


@dataclass(frozen=True, slots=True)
class Supply:
    """What all workers together can carry."""

    workers: int = 0
    capacity: float = 0.0
    """Streams at real time; infinite while a worker has not said."""

    busy: float = 0.0
    """The share of time in which the least busy one computes."""

    @classmethod
    def of(cls, loads: Iterable[WorkerLoad | None]) -> Supply:
        """The sum over workers.

        Each is given one stream at least: a worker that finds itself too slow learns otherwise only by speaking.
        """
        found = list(loads)
        capacity = sum(math.inf if load is None else max(load.capacity, 1) for load in found)
        return cls(len(found), capacity, min((load.busy if load else 0.0 for load in found), default=0.0))


@dataclass(frozen=True, slots=True)
class Demand:
    """What listeners ask for, of one relay or of all together."""

    speaking: int = 0
    conversations: int = 0

    @classmethod
    def of(cls, relays: Iterable[RelayDemand]) -> Demand:
        """The sum over relays."""
        found = list(relays)
        return cls(sum(relay.speaking for relay in found), sum(relay.conversations for relay in found))

    def plus(self, other: Demand, times: int = 1) -> Demand:
        """Both together."""
        return Demand(self.speaking + times * other.speaking, self.conversations + times * other.conversations)


def judge(supply: Supply, demand: Demand, *, ceiling: float, duty: float, known: bool) -> Grounds | None:
    """The grounds for refusing one more context that is about to speak; None when it can be taken.

    Args:
        ceiling: streams that the workers have shown to be able to carry, see `next_ceiling`.
        duty: the share of its time that a conversation speaks, see `next_duty`.
        known: whether the context goes on with a conversation, which `demand.conversations` counts already.
    """
    if not supply.workers:
        return Grounds.NO_WORKER
    streams = min(supply.capacity, ceiling)
    if demand.speaking + 1 > streams:
        return Grounds.FULL
    if known:
        return None
    if expect_streams(demand.conversations + 1, duty) > streams:
        return Grounds.RESERVED
    if supply.busy >= SATURATED and demand.speaking > supply.capacity / 2:
        return Grounds.RESERVED
    return None


def expect_streams(conversations: int, duty: float) -> float:
    """How many of so many conversations speak at once, at most, in 99 of 100 cases.

    Each speaks for a share `duty` of its time, independently: a binomial distribution, by its normal approximation.
    """
    mean = conversations * duty
    return min(float(conversations), mean + SPREAD * math.sqrt(mean * (1.0 - duty)))


def next_duty(duty: float, demand: Demand, elapsed_s: float) -> float:
    """The share of their time that conversations speak, averaged over about DUTY_MEMORY_S; it should begin at 1."""
    if not demand.conversations:
        return duty
    seen = min(demand.speaking / demand.conversations, 1.0)
    return max(MIN_DUTY, duty + (seen - duty) * (1.0 - math.exp(-elapsed_s / DUTY_MEMORY_S)))


def next_ceiling(ceiling: float, capacity: float, speaking: int, late: int, elapsed_s: float) -> float:
    """How many streams are lent: what the workers announce, unless it has proved too much.

    When audio came late for many, a little less than what was spoken then; afterwards it rises again, slowly (additive
    increase, multiplicative decrease, as in TCP congestion control: Chiu and Jain, 1989).
    """
    lowest = max(1.0, LOWEST_SHARE * capacity)
    if late >= max(FEWEST_LATE, LATE_SHARE * speaking) and speaking > lowest:
        return max(lowest, min(ceiling, BACK_OFF * speaking))
    if math.isinf(capacity):
        return ceiling + elapsed_s
    return min(capacity, ceiling + RECOVERY_PER_S * capacity * elapsed_s)
