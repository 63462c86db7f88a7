"""Who is in the next batch: plain values in, a plan out.

Earliest deadline first (Liu and Layland, 1973), the deadline of a stream being the moment at which its listener runs
dry, with three additions: nobody gets further ahead of his listener than a bound, a listener who has heard nothing yet
goes before the surplus of others, and a batch that nobody waits for stays short, so that whoever comes next waits
little.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

SYMBOL_S = 0.06
"""What a symbol is thought to last at least, to guess when a sentence under way will end."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the scheduler goes by, in seconds and rows."""

    run_ahead_s: float = 10.0
    """How far ahead of its listener a stream may be."""
    rows: int = 32
    """The most streams in one batch."""
    quiet_s: float = 0.012
    """How long a batch may take that holds nobody who would run dry soon."""
    quiet_rows: int = 4
    """What such a batch may hold in any case: by itself a row costs twice what it costs among four."""
    urgent_s: float = 0.1
    """Whoever runs dry within this has a place in the next batch."""
    critical_s: float = 0.04
    """Whoever runs dry within this may delay the first sound of another."""
    patience_s: float = 0.02
    """How long the first sound of a stream may wait for those who would run dry meanwhile."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A stream that has something left to compute."""

    key: int
    deadline: float
    """When its listener runs dry, in seconds of any clock."""
    starting: bool
    """Whether its listener waits in silence."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The next batch, most urgent first; when it is empty, the moment at which to look again."""

    keys: tuple[int, ...]
    wake_at: float | None = None


class Costs:
    """How long a batch takes: a part for the call and a part for each row, learnt from what was measured."""

    def __init__(self, call_s: float = 1e-3, row_s: float = 1e-3) -> None:
        self.call_s = call_s
        self.row_s = row_s

    def note(self, rows: int, seconds: float) -> None:
        """A batch of so many rows took so long; each such step moves the estimate a little (LMS, Widrow and Hoff)."""
        error = seconds - self.expect(rows)
        # An interruption by the system says nothing of the work.
        error = min(error, 3 * self.expect(rows))
        rate = 0.1 / (1 + rows * rows)
        self.call_s = max(1e-5, self.call_s + rate * error)
        self.row_s = max(1e-6, self.row_s + rate * rows * error)

    def expect(self, rows: int) -> float:
        """How long a batch of so many rows should take."""
        return self.call_s + self.row_s * rows

    def rows_within(self, seconds: float) -> int:
        """The largest batch that should take no longer, at least one row."""
        return max(1, int((seconds - self.call_s) / self.row_s))


def plan_batch(standings: Sequence[Standing], now: float, limits: Limits, costs: Costs) -> Plan:
    """The batch to compute now."""
    ready = [standing for standing in standings if standing.deadline - now <= limits.run_ahead_s]
    if not ready:
        earliest = min((standing.deadline for standing in standings), default=None)
        return Plan((), None if earliest is None else earliest - limits.run_ahead_s)
    ready.sort(key=lambda standing: (_due(standing, limits), standing.key))
    if any(standing.starting for standing in ready):
        chosen = [s for s in ready if s.starting or s.deadline - now <= limits.critical_s]
    else:
        urgent = sum(standing.deadline - now <= limits.urgent_s for standing in ready)
        chosen = ready[: max(urgent, limits.quiet_rows, costs.rows_within(limits.quiet_s))]
    return Plan(tuple(standing.key for standing in chosen[: limits.rows]))


def _due(standing: Standing, limits: Limits) -> float:
    """Listeners who hear something already win over those who do not yet."""
    return standing.deadline + limits.patience_s if standing.starting else standing.deadline


@dataclass(slots=True)
class Supply:
    """What a stream has been given and still needs; times are in seconds of one clock."""

    context: str
    sentence: int
    needed_at: float
    """When its listener needs its first sample, as far as the relay knew."""
    symbols_left: int
    resumed: bool = False
    """Whether another worker began it: its listener has had the beginning, and late chunks do not make him wait."""
    starting: bool = False
    """Whether its listener waits in silence for its first chunk."""
    given_s: float = 0.0
    """What its listener has of it, in the time that it takes to be heard."""
    speed: float = 1.0
    """How many times faster than it is spoken it is heard."""


class Roster:
    """The streams of one worker, and when each of them must have its next chunk.

    The sentences of a context are heard one after the other: one that follows another is not needed before that one
    has ended, which its relay could not know when it handed both out.
    """

    def __init__(self) -> None:
        self._supplies: dict[int, Supply] = {}
        self._dry_at: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._supplies)

    @property
    def listeners(self) -> int:
        """How many contexts have streams here."""
        return len({supply.context for supply in self._supplies.values()})

    def join(self, key: int, supply: Supply, now: float) -> None:
        """A stream begins."""
        self._dry_at = {context: dry_at for context, dry_at in self._dry_at.items() if dry_at > now}
        others = [other for other in self._supplies.values() if other.context == supply.context]
        waits = supply.needed_at <= now and supply.context not in self._dry_at
        supply.starting = waits and not supply.resumed and all(other.sentence > supply.sentence for other in others)
        self._supplies[key] = supply

    def give(self, key: int, seconds: float, symbols_left: int, now: float) -> None:
        """So much of the stream was computed. What comes late moves all that follows, for its listener has waited."""
        supply = self._supplies.get(key)
        if supply is None:
            return
        if not supply.resumed:
            supply.needed_at = max(supply.needed_at, now - supply.given_s)
        supply.given_s += seconds / supply.speed
        supply.starting = supply.starting and not seconds
        supply.symbols_left = symbols_left

    def finish(self, key: int) -> None:
        """All of a stream was computed: the next sentence of its context is needed when this one has been heard."""
        deadlines = dict(self._deadlines())
        if (supply := self._supplies.pop(key, None)) is not None:
            self._dry_at[supply.context] = deadlines[key]

    def leave(self, key: int) -> None:
        """A stream ends before its time."""
        self._supplies.pop(key, None)

    def standings(self, keys: Container[int]) -> list[Standing]:
        """The standings of those of the given streams that are here."""
        return [
            Standing(key, deadline, self._supplies[key].starting) for key, deadline in self._deadlines() if key in keys
        ]

    def _deadlines(self) -> Iterator[tuple[int, float]]:
        ends = dict(self._dry_at)
        in_order = sorted(self._supplies.items(), key=lambda item: item[1].sentence)
        for key, supply in in_order:
            begins = max(supply.needed_at, ends.get(supply.context, float("-inf")))
            yield key, begins + supply.given_s
            ends[supply.context] = begins + supply.given_s + SYMBOL_S * supply.symbols_left / supply.speed
