"""relay.entrance.capacity: what one more listener may cost those who listen."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.entrance.capacity import Demand, Grounds, Supply, expect_streams, judge, next_ceiling, next_duty
from storage.streams.presence import RelayDemand, WorkerLoad

counts = st.integers(0, 200)
shares = st.floats(0.1, 1.0)


def demands() -> st.SearchStrategy[Demand]:
    """As many as speak are conversations, at least."""
    return st.tuples(counts, counts).map(lambda pair: Demand(min(pair), max(pair)))


def test_supply_and_demand_are_sums() -> None:
    """Several workers and several relays share one capacity."""
    supply = Supply.of([WorkerLoad(10, 3, 0.9), WorkerLoad(14, 0, 0.2)])
    assert (supply.workers, supply.capacity, supply.busy) == (2, 24, 0.2)
    assert Supply.of([WorkerLoad(10, 3, 0.9), None]).capacity == math.inf
    assert Demand.of([RelayDemand(1, 4, 0), RelayDemand(2, 5, 1)]) == Demand(3, 9)
    assert Demand.of([]) == Demand()


def test_without_a_worker_nobody_is_taken() -> None:
    """There is nothing to wait for, and it is said at once."""
    assert judge(Supply.of([]), Demand(), ceiling=0, duty=1.0, known=True) is Grounds.NO_WORKER


def test_a_worker_that_finds_itself_too_slow_gets_one_at_a_time() -> None:
    """With nobody to speak to it would never find out that it is faster again."""
    slow = Supply.of([WorkerLoad(0, 0, 0.0)])
    assert judge(slow, Demand(), ceiling=1, duty=1.0, known=False) is None
    assert judge(slow, Demand(1, 1), ceiling=1, duty=1.0, known=True) is Grounds.FULL


@given(demands(), st.integers(1, 100), shares)
def test_nobody_is_taken_beyond_what_the_workers_carry(demand: Demand, capacity: int, duty: float) -> None:
    """Whoever is taken, the streams at real time stay within the announced capacity."""
    supply = Supply(1, capacity, 0.5)
    for known in (False, True):
        if judge(supply, demand, ceiling=capacity, duty=duty, known=known) is None:
            assert demand.speaking + 1 <= capacity


@given(demands(), st.integers(1, 100), st.floats(1, 100), shares, st.floats(0, 1))
def test_a_conversation_goes_on_wherever_a_newcomer_is_taken(
    demand: Demand, capacity: int, ceiling: float, duty: float, busy: float
) -> None:
    """Existing listeners win over new ones, in every state."""
    supply = Supply(1, capacity, busy)
    if judge(supply, demand, ceiling=ceiling, duty=duty, known=False) is None:
        assert judge(supply, demand, ceiling=ceiling, duty=duty, known=True) is None


@given(demands(), demands(), st.integers(1, 100), shares, st.booleans())
def test_more_demand_never_opens_the_gate(
    demand: Demand, more: Demand, capacity: int, duty: float, known: bool
) -> None:
    """Who is refused at some demand is refused at every higher one."""
    supply = Supply(1, capacity, 0.5)
    if judge(supply, demand, ceiling=capacity, duty=duty, known=known) is not None:
        assert judge(supply, demand.plus(more), ceiling=capacity, duty=duty, known=known) is not None


@given(counts, shares, shares)
def test_the_expectation_grows_with_the_conversations_and_with_their_duty(n: int, duty: float, other: float) -> None:
    """Never more streams than conversations, never fewer than the mean."""
    assert n * duty - 1e-9 <= expect_streams(n, duty) <= n
    assert expect_streams(n, duty) <= expect_streams(n + 1, duty)
    assert expect_streams(n, min(duty, other)) <= expect_streams(n, max(duty, other)) + 1e-9


@pytest.mark.parametrize(("streams", "duty"), [(24, 0.4), (24, 0.6), (64, 0.4)])
def test_conversations_that_were_taken_seldom_need_more_than_there_is(streams: int, duty: float) -> None:
    """Of random moments of as many agents as are taken, at most one in fifty needs more streams than there are."""
    chance, taken = random.Random(4), 0
    while expect_streams(taken + 1, duty) <= streams:
        taken += 1
    assert taken > streams / duty * 0.6
    over = sum(sum(chance.random() < duty for _ in range(taken)) > streams for _ in range(4000))
    assert over / 4000 < 0.02


def test_agents_that_talk_two_fifths_of_the_time_are_more_than_the_streams() -> None:
    """At first a conversation is reckoned to speak always; what is learnt of it makes room."""
    supply, duty, now = Supply(1, 24, 0.5), 1.0, Demand(10, 24)
    assert judge(supply, now, ceiling=24, duty=duty, known=False) is Grounds.RESERVED
    for _ in range(240):
        duty = next_duty(duty, now, 0.5)
    assert duty == pytest.approx(10 / 24, abs=0.02)
    assert judge(supply, now, ceiling=24, duty=duty, known=False) is None


def test_a_duty_is_not_learnt_from_nobody() -> None:
    """An empty service knows as much as before."""
    assert next_duty(0.4, Demand(), 100.0) == 0.4


def test_saturated_workers_take_no_newcomers() -> None:
    """Workers that never rest and carry half of what they claim have claimed too much."""
    assert judge(Supply(1, 20, 1.0), Demand(11, 11), ceiling=20, duty=1.0, known=False) is Grounds.RESERVED
    assert judge(Supply(1, 20, 1.0), Demand(11, 11), ceiling=20, duty=1.0, known=True) is None
    assert judge(Supply(1, 20, 1.0), Demand(5, 5), ceiling=20, duty=1.0, known=False) is None


@given(st.floats(1, 100), st.integers(1, 100), counts, st.integers(0, 5), st.floats(0, 6))
def test_the_ceiling_stays_between_its_bounds(
    ceiling: float, capacity: int, speaking: int, late: int, elapsed: float
) -> None:
    """It never promises more than the workers do, and never closes the house."""
    found = next_ceiling(min(ceiling, capacity), capacity, speaking, late, elapsed)
    assert 1.0 <= found <= capacity


def test_lateness_lowers_the_ceiling_below_what_was_spoken_and_calm_raises_it_slowly() -> None:
    """A capacity that was announced too high is found out, and tried again in small steps."""
    ceiling = next_ceiling(40.0, 40, 30, 3, 0.5)
    assert ceiling == pytest.approx(27.0)
    assert next_ceiling(ceiling, 40, 30, 3, 0.5) == ceiling
    calm = next_ceiling(ceiling, 40, 27, 0, 0.5)
    assert ceiling < calm < ceiling + 1
    assert next_ceiling(ceiling, 40, 27, 0, 100.0) == 40
    assert next_ceiling(math.inf, math.inf, 50, 10, 0.5) == math.inf


@pytest.mark.parametrize(("speaking", "late"), [(3, 3), (30, 2), (15, 1)])
def test_an_accident_is_no_overload(speaking: int, late: int) -> None:
    """Few listeners, or few late chunks among many, have other reasons than the number of listeners."""
    assert next_ceiling(40.0, 40, speaking, late, 0.5) == 40.0
