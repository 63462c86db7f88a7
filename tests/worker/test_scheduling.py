"""worker.scheduling: deadlines in, batches out, with listeners that are simulated."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.scheduling import Costs, Limits, Roster, Standing, Supply, plan_batch

LIMITS = Limits(run_ahead_s=3.0)
COSTS = Costs(0.002, 0.001)
CHUNK_S = 0.08

standings = st.lists(
    st.builds(
        Standing,
        key=st.integers(0, 1000),
        deadline=st.floats(-5, 10),
        starting=st.booleans(),
    ),
    max_size=80,
    unique_by=lambda standing: standing.key,
)


@given(standings)
def test_a_plan_is_a_batch_or_a_moment_to_wake(present: list[Standing]) -> None:
    """Bounded, without doubles, nobody beyond the run-ahead, and somebody as soon as anybody is due."""
    plan = plan_batch(present, 0.0, LIMITS, COSTS)
    due = {one.key: one for one in present if one.deadline <= LIMITS.run_ahead_s}
    assert len(set(plan.keys)) == len(plan.keys) <= LIMITS.rows
    assert set(plan.keys) <= set(due)
    assert bool(plan.keys) == bool(due)
    if present and not due:
        assert plan.wake_at == min(one.deadline for one in present) - LIMITS.run_ahead_s


@given(standings)
def test_nobody_who_waits_is_left_out_for_surplus(present: list[Standing]) -> None:
    """Whoever is in a batch with time to spare took no place from one who is about to run dry, or waits in silence."""
    plan = plan_batch(present, 0.0, LIMITS, COSTS)
    chosen = [one for one in present if one.key in plan.keys]
    left = [one for one in present if one.key not in plan.keys and one.deadline <= LIMITS.run_ahead_s]
    if any(one.deadline > LIMITS.urgent_s and not one.starting for one in chosen):
        assert not [one for one in left if one.deadline <= LIMITS.critical_s or one.starting]


@given(standings)
def test_the_first_sound_waits_for_no_surplus(present: list[Standing]) -> None:
    """Beside streams that wait in silence only those are computed that would run dry."""
    plan = plan_batch(present, 0.0, LIMITS, COSTS)
    chosen = [one for one in present if one.key in plan.keys]
    if any(one.starting and one.deadline <= LIMITS.run_ahead_s for one in present):
        assert all(one.starting or one.deadline <= LIMITS.critical_s for one in chosen)


def test_listeners_who_hear_something_win() -> None:
    """Where there is no place for all, one who would run dry now goes before one who has heard nothing yet."""
    plan = plan_batch([Standing(1, 0.0, True), Standing(2, 0.01, False)], 0.0, Limits(run_ahead_s=3.0, rows=1), COSTS)
    assert plan.keys == (2,)


def test_a_batch_of_surplus_is_short() -> None:
    """As many as fit in the time that a newcomer may have to wait."""
    present = [Standing(key, 1.0, False) for key in range(40)]
    plan = plan_batch(present, 0.0, Limits(quiet_s=0.012), Costs(0.002, 0.001))
    assert len(plan.keys) == 10
    slow = plan_batch(present, 0.0, Limits(quiet_s=0.012), Costs(0.01, 0.05))
    assert len(slow.keys) == LIMITS.quiet_rows


def test_costs_are_learnt() -> None:
    """Whatever they were thought to be, batches of several sizes teach what they are."""
    costs = Costs(0.0001, 0.01)
    for step in range(3000):
        rows = (1, 4, 16, 32)[step % 4]
        costs.note(rows, 0.003 + 0.0005 * rows)
    for rows in (1, 8, 32):
        assert costs.expect(rows) == pytest.approx(0.003 + 0.0005 * rows, rel=0.1)


def test_the_next_sentence_of_a_context_is_needed_when_the_one_before_has_been_heard() -> None:
    """Both were handed out at once; only the first waits in silence, and the second begins where the first ends."""
    roster = Roster()
    roster.join(1, Supply("c", 0, needed_at=10.0, symbols_left=20), now=10.0)
    roster.join(2, Supply("c", 1, needed_at=10.0, symbols_left=20), now=10.0)
    first, second = roster.standings({1, 2})
    assert (first.key, first.deadline, first.starting) == (1, 10.0, True)
    assert (second.key, second.starting) == (2, False)
    assert second.deadline > 11.0
    roster.give(1, 2.0, 0, now=10.1)
    roster.finish(1)
    (second,) = roster.standings({2})
    assert second.deadline == pytest.approx(12.1)
    assert roster.listeners == 1


def test_a_listener_who_hears_faster_runs_dry_sooner() -> None:
    """At twice the speed two seconds last one, within a sentence and for the one that follows."""
    roster = Roster()
    roster.join(1, Supply("c", 0, needed_at=10.0, symbols_left=20, speed=2.0), now=10.0)
    roster.join(2, Supply("c", 1, needed_at=10.0, symbols_left=20, speed=2.0), now=10.0)
    roster.give(1, 2.0, 0, now=10.0)
    assert [standing.deadline for standing in roster.standings({1, 2})] == [11.0, 11.0]
    roster.finish(1)
    roster.give(2, 1.0, 0, now=10.0)
    assert [standing.deadline for standing in roster.standings({2})] == [11.5]


def test_what_comes_late_moves_what_follows() -> None:
    """A listener who began to hear a second late runs dry a second later."""
    roster = Roster()
    roster.join(1, Supply("c", 0, needed_at=0.0, symbols_left=9), now=0.0)
    roster.give(1, CHUNK_S, 8, now=1.0)
    assert roster.standings({1}) == [Standing(1, 1.0 + CHUNK_S, False)]


def test_a_sentence_that_was_taken_over_catches_up() -> None:
    """Its listener has had its beginning from another worker: computing that again moves nothing."""
    roster = Roster()
    roster.join(1, Supply("c", 0, needed_at=0.0, symbols_left=9, resumed=True), now=2.0)
    roster.give(1, CHUNK_S, 8, now=2.1)
    assert roster.standings({1}) == [Standing(1, CHUNK_S, False)]


def test_who_left_is_nowhere() -> None:
    """A stream that ended before its time has no standing, and giving to it does nothing."""
    roster = Roster()
    roster.join(1, Supply("c", 0, needed_at=0.0, symbols_left=9), now=0.0)
    roster.leave(1)
    roster.give(1, 1.0, 0, now=1.0)
    roster.finish(1)
    assert not roster.standings({1})
    assert len(roster) == 0


@dataclass
class _World:
    """A worker on a simulated clock, and its listeners."""

    limits: Limits = LIMITS
    costs: Costs = field(default_factory=lambda: Costs(0.002, 0.001))
    now: float = 0.0
    roster: Roster = field(default_factory=Roster)
    steps: dict[int, int] = field(default_factory=dict)
    length_s: dict[int, float] = field(default_factory=dict)
    joined: dict[int, float] = field(default_factory=dict)
    first: dict[int, float] = field(default_factory=dict)
    heard_until: dict[int, float] = field(default_factory=dict)
    underruns: int = 0
    furthest: float = 0.0

    def join(self, key: int, seconds: float) -> None:
        self.steps[key], self.length_s[key], self.joined[key] = 0, seconds, self.now
        self.roster.join(key, Supply(str(key), 0, self.now, int(seconds / 0.08)), self.now)

    def step(self, until: float) -> None:
        """One batch, or the time until somebody is due or something else happens."""
        plan = plan_batch(self.roster.standings(set(self.steps)), self.now, self.limits, self.costs)
        if not plan.keys:
            self.now = min(until, plan.wake_at if plan.wake_at is not None else until)
            return
        self.now += self.costs.expect(len(plan.keys))
        for key in plan.keys:
            self._account(key)

    def _account(self, key: int) -> None:
        self.steps[key] += 1
        # Two steps go by before the first chunk is there.
        seconds = CHUNK_S if self.steps[key] > 2 else 0.0
        if seconds:
            self.first.setdefault(key, self.now - self.joined[key])
            dry_at = self.heard_until.setdefault(key, self.now)
            self.underruns += self.now > dry_at + 1e-9
            self.heard_until[key] = max(dry_at, self.now) + seconds
            self.furthest = max(self.furthest, self.heard_until[key] - self.now)
        left = self.length_s[key] - (self.steps[key] - 2) * CHUNK_S
        self.roster.give(key, seconds, max(0, int(left / 0.08)), self.now)
        if left <= 0:
            self.roster.finish(key)
            del self.steps[key]


@given(st.lists(st.tuples(st.floats(0, 6), st.floats(0.5, 6)), min_size=1, max_size=30))
def test_thirty_listeners_never_run_dry_and_newcomers_hear_something_at_once(
    arrivals: list[tuple[float, float]],
) -> None:
    """At a load that the worker can carry nobody runs dry, whoever joins when; a first sound takes three batches of
    those who need it and one that was under way; nobody gets further ahead than the bound and a chunk."""
    world = _World()
    for key, (when, seconds) in enumerate(sorted(arrivals)):
        while world.now < when:
            world.step(when)
        world.join(key, seconds)
    while world.steps:
        world.step(1e9)
    assert world.underruns == 0
    together = max(sum(abs(when - other) < 0.5 for other, _ in arrivals) for when, _ in arrivals)
    assert max(world.first.values()) <= 3 * world.costs.expect(together + 4) + LIMITS.quiet_s + LIMITS.critical_s
    assert world.furthest <= LIMITS.run_ahead_s + 2 * CHUNK_S
