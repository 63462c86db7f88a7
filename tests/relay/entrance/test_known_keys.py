"""relay.entrance.known_keys."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from relay.entrance import known_keys
from relay.entrance.known_keys import KEPT_S, KnownKeys
from storage.states import TenantState
from storage.tenancy.api_keys import Caller
from storage.tenancy.limits import Limits


class Clock:
    """Time that stands still until it is told otherwise."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def caller(tenant: UUID | None = None) -> Caller:
    return Caller(uuid4(), tenant or uuid4(), frozenset(), None, Limits(), TenantState.ACTIVE)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def known(clock: Clock) -> KnownKeys:
    made = KnownKeys(clock)
    clock.now = 1.0
    return made


def test_a_key_is_known_for_some_minutes_after_it_was_found_valid(known: KnownKeys, clock: Clock) -> None:
    """Each time anew; nobody else's is."""
    who = caller()
    known.remember(b"a", who, clock())
    clock.now += KEPT_S - 1
    assert (known.knows(b"a"), known.knows(b"b")) == (True, False)
    known.remember(b"a", who, clock())
    clock.now += KEPT_S - 1
    assert known.knows(b"a")
    clock.now += 2
    assert not known.knows(b"a")


def test_a_key_that_opened_nothing_is_forgotten(known: KnownKeys, clock: Clock) -> None:
    """At once, whoever knew it; forgetting what is not known is no fault."""
    known.remember(b"a", caller(), clock())
    known.forget(b"a")
    known.forget(b"b")
    assert not known.knows(b"a")


def test_news_of_a_key_or_a_tenant_takes_their_keys_away(known: KnownKeys, clock: Clock) -> None:
    """A tenant's id stands for all its keys; others stay, until anything may have been missed."""
    first, second, other, last = caller(), caller(), caller(), caller()
    for name, who in ((b"1", first), (b"2", second), (b"3", caller(other.tenant)), (b"4", other), (b"5", last)):
        known.remember(name, who, clock())
    known.hear(first.key_id)
    assert [known.knows(name) for name in (b"1", b"2", b"3", b"4", b"5")] == [False, True, True, True, True]
    known.hear(other.tenant)
    assert [known.knows(name) for name in (b"2", b"3", b"4", b"5")] == [True, False, False, True]
    known.hear(None)
    assert not known.knows(b"2") and not known.knows(b"5")


def test_a_key_that_was_looked_up_before_the_news_is_not_known_after_it(known: KnownKeys, clock: Clock) -> None:
    """It may have been revoked between its look-up and now."""
    asked_at = clock()
    clock.now += 1
    known.hear(uuid4())
    known.remember(b"a", caller(), asked_at)
    assert not known.knows(b"a")
    clock.now += 1
    known.remember(b"a", caller(), clock())
    assert known.knows(b"a")


def test_the_memory_is_bounded(known: KnownKeys, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were used longest ago go first."""
    monkeypatch.setattr(known_keys, "MAX_KEYS", 3)
    names = [bytes([number]) for number in range(5)]
    for name in [*names[:3], names[0], *names[3:]]:
        known.remember(name, caller(), clock())
    assert [known.knows(name) for name in names] == [True, False, False, True, True]
