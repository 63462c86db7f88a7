"""relay.entrance.admission: places, and what a heartbeat changes about them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from uuid import uuid4

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from relay.entrance.admission import MEMORY_S, PROMISE_S, STALE_S, Admission, Bounds, Place
from relay.errors import Refused, ServiceUnavailable
from storage.streams.presence import RelayDemand, WorkerLoad

TENANT, OTHER = uuid4(), uuid4()


@dataclass
class Gate:
    """An admission with a clock that moves when the test says so."""

    capacity: int = 2
    bounds: Bounds = field(default_factory=lambda: Bounds(100, 50, 10))
    now: float = 100.0

    def __post_init__(self) -> None:
        self.admission = Admission("mine", self, self.bounds, chance=lambda: 0.5)
        self.beat()

    def monotonic(self) -> float:
        return self.now

    def unix_ms(self) -> int:
        return int(self.now * 1000)

    def beat(self, lag: int = 0, workers: int = 1, late: int = 0, **others: RelayDemand) -> RelayDemand:
        mine = self.admission.demand()
        loads = {f"w{number}": WorkerLoad(self.capacity, 0, 0.5) for number in range(workers)}
        heard = RelayDemand(mine.speaking, mine.conversations, mine.late + late)
        self.admission.observe(loads, {"mine": mine, **others}, heard, lag)
        return mine

    def admit(self, listener: str = "a") -> Place:
        return self.admission.admit(TENANT, listener)

    def speak(self, place: Place, seconds: float) -> None:
        """The listener has that much to hear from now on."""
        self.admission.note(place, self.now + seconds, 0)

    def refusal(self, listener: str = "new") -> Refused:
        with pytest.raises(Refused) as caught:
            self.admit(listener)
        return caught.value


def test_what_the_workers_cannot_carry_is_refused_with_a_time_to_come_back() -> None:
    """The third stream of two is told so at once, in the protocol's words."""
    gate = Gate(capacity=2)
    gate.admit("a")
    gate.admit("b")
    refusal = gate.refusal()
    assert (refusal.code, refusal.retryable, refusal.status) == ("overloaded", True, 429)
    assert refusal.as_dict()["retry_after_ms"] == 1000


def test_a_listener_who_hears_twice_as_fast_takes_two_streams() -> None:
    """Of two there is none left; of one who hears slower, there is."""
    gate = Gate(capacity=2)
    place = gate.admission.admit(TENANT, "a", speed=2.0)
    assert gate.refusal().code == "overloaded"
    gate.admission.leave(place.listener)
    gate.admission.admit(TENANT, "a", speed=0.5)
    gate.admit("b")


def test_a_context_that_says_nothing_gives_its_stream_back_and_is_a_newcomer_later() -> None:
    """Opening is a promise for some seconds; a place is not a stream."""
    gate = Gate(capacity=1)
    silent = gate.admit("a")
    gate.now += PROMISE_S + MEMORY_S + 1
    gate.beat()
    speaker = gate.admit("b")
    gate.admission.note(speaker, math.inf, 0)
    with pytest.raises(Refused):
        gate.admission.readmit(silent)
    gate.admission.release(speaker)
    gate.admission.leave("b")
    gate.admission.readmit(silent)
    assert gate.beat().speaking == 1


def test_a_conversation_goes_on_before_a_newcomer_begins() -> None:
    """Between two turns its stream is free, but not for strangers while the conversation is expected to need it."""
    gate = Gate(capacity=1)
    turn = gate.admit("a")
    gate.speak(turn, 3.0)
    gate.admission.release(turn)
    gate.now += 10.0
    gate.beat()
    assert gate.refusal("b").retry_after_ms == 3000
    assert gate.admit("a") is turn
    gate.refusal("a")


def test_a_conversation_is_forgotten_with_its_connection_or_after_some_time() -> None:
    """Who is gone, or silent for long, keeps nothing."""
    gate = Gate(capacity=1)
    for leave in (True, False):
        place = gate.admit("a")
        gate.speak(place, 1.0)
        gate.admission.release(place)
        if leave:
            gate.admission.leave("a")
        else:
            gate.now += 1.0 + MEMORY_S + 0.1
        gate.beat()
        assert gate.beat().conversations == 0


def test_what_was_said_to_nobody_leaves_no_place() -> None:
    """Opening and cancelling again does not count as a conversation."""
    gate = Gate(capacity=1)
    for number in range(20):
        gate.admission.release(gate.admit(f"a{number}"))
    assert gate.beat().conversations == 0


def test_a_tail_that_is_still_heard_does_not_stand_in_the_way_of_its_own_next_turn() -> None:
    """The last words of a turn and the first of the next are one listener's."""
    gate = Gate(capacity=1)
    turn = gate.admit("a")
    gate.speak(turn, 3.0)
    gate.admission.release(turn)
    assert gate.beat().speaking == 1
    assert gate.admit("a") is turn


def test_relays_share_what_the_workers_carry() -> None:
    """The streams of other relays count, and between heartbeats each is assumed to take as many as this one."""
    gate = Gate(capacity=6)
    gate.beat(other=RelayDemand(2, 2, 0))
    gate.admit("a")
    gate.admit("b")
    gate.refusal("c")
    gate.beat(other=RelayDemand(2, 2, 0))
    gate.admit("c")
    gate.beat(other=RelayDemand(3, 3, 0))
    gate.refusal("d")


def test_workers_add_up_and_their_going_is_noticed() -> None:
    """Two carry twice as many; without any, newcomers are told to come back, and without news from Redis, why."""
    gate = Gate(capacity=1)
    gate.beat(workers=2)
    gate.admit("a")
    gate.admit("b")
    gate.beat(workers=0)
    assert (gate.admission.workers, gate.refusal().retry_after_ms) == (0, 2000)
    gate.now += STALE_S + 1
    with pytest.raises(ServiceUnavailable) as caught:
        gate.admit("c")
    assert caught.value.as_dict()["retry_after_ms"] == 2000


def test_before_the_first_heartbeat_nobody_is_taken() -> None:
    """A relay that knows nothing promises nothing."""
    gate = Gate()
    with pytest.raises(Refused, match="no worker"):
        Admission("mine", gate, gate.bounds).admit(TENANT, "a")


def test_a_full_queue_refuses_everybody() -> None:
    """Jobs that no worker takes are a sign of their own."""
    gate = Gate(capacity=50)
    gate.beat(lag=11)
    assert "fallen behind" in gate.refusal().message
    gate.beat(lag=10)
    gate.admit()


def test_a_tenant_has_its_share_and_the_relay_its_bound() -> None:
    """Neither depends on the workers; each has its code."""
    gate = Gate(capacity=50, bounds=Bounds(max_contexts=3, max_tenant_contexts=2, max_queue=10))
    place = gate.admit("a")
    gate.admit("a")
    assert gate.refusal("a").code == "too_many_contexts"
    gate.admission.admit(OTHER, "b")
    with pytest.raises(Refused) as caught:
        gate.admission.admit(OTHER, "b")
    assert caught.value.code == "overloaded"
    gate.admission.release(place)
    gate.admit("a")


def test_lateness_closes_the_gate() -> None:
    """When those who listen have to wait, nobody is added to them; conversations go on with what was too few before."""
    gate = Gate(capacity=10)
    turns = [gate.admit(f"a{number}") for number in range(6)]
    for turn in turns:
        gate.speak(turn, 60.0)
    gate.admission.note(turns[0], gate.now + 60.0, 2)
    assert gate.beat().late == 2
    assert gate.beat().late == 0
    gate.refusal()
    for turn in turns[1:3]:
        gate.speak(turn, 0.0)
        gate.admission.release(turn)
    gate.refusal()
    assert gate.admit("a1") is turns[1]
    gate.refusal("a2")


class Traffic(RuleBasedStateMachine):
    """Anybody comes, speaks, pauses and goes, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate(capacity=4, bounds=Bounds(8, 5, 10))
        self.open: list[Place] = []

    @rule(listener=st.sampled_from("abcdef"))
    def arrive(self, listener: str) -> None:
        before = self.gate.admission.demand()
        try:
            self.open.append(self.gate.admit(listener))
        except Refused:
            return
        assert before.speaking <= 4

    @precondition(lambda self: self.open)
    @rule(data=st.data(), seconds=st.sampled_from([0.5, 3.0, math.inf]))
    def speak(self, data: st.DataObject, seconds: float) -> None:
        place = data.draw(st.sampled_from(self.open))
        try:
            self.gate.admission.readmit(place)
        except Refused:
            return
        self.gate.speak(place, seconds)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        place = data.draw(st.sampled_from(self.open))
        self.open.remove(place)
        self.gate.speak(place, 1.0)
        self.gate.admission.release(place)

    @rule(seconds=st.sampled_from([0.1, 5.0, 40.0]))
    def wait(self, seconds: float) -> None:
        self.gate.now += seconds
        self.gate.beat()

    @rule(listener=st.sampled_from("abcdef"))
    def leave(self, listener: str) -> None:
        self.open = [place for place in self.open if place.listener != listener]
        self.gate.admission.leave(listener)

    @invariant()
    def bounds_hold(self) -> None:
        demand = self.gate.admission.demand()
        assert demand.speaking <= demand.conversations
        assert len(self.open) <= 5


TestTraffic = Traffic.TestCase
TestTraffic.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
