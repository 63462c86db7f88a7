"""relay.speaking.flushes and relay.speaking.holding."""

from __future__ import annotations

from uuid import uuid4

import pytest

from relay.speaking.flushes import Flushes
from relay.speaking.holding import MAX_KEPT, Held, Kept
from relay.speaking.session import Session
from tests.relay.conftest import VOICE, Harness


def make_flushes() -> Flushes:
    """Behind nothing, two sentences twice, and three."""
    flushes = Flushes()
    for sentences in (0, 2, 2, 3):
        flushes.add(sentences)
    return flushes


def test_flushes_are_answered_once_in_order() -> None:
    """As soon as the sentences before them are spoken."""
    flushes = make_flushes()
    assert [list(flushes.answer(spoken)) for spoken in (0, 1, 2, 2, 3)] == [[0], [], [1, 2], [], [3]]


@pytest.mark.parametrize(
    ("sentence", "chunk", "again"),
    [(0, -1, [0, 1, 2, 3]), (0, 4, [1, 2, 3]), (1, 7, [1, 2, 3]), (2, -1, [1, 2, 3]), (2, 0, [3]), (3, 0, [])],
)
def test_what_a_client_may_have_missed_is_answered_again(sentence: int, chunk: int, again: list[int]) -> None:
    """A chunk of a sentence has come after the answers to all flushes before that sentence."""
    flushes = make_flushes()
    list(flushes.answer(3))
    flushes.rewind(sentence, chunk)
    assert list(flushes.answer(3)) == again


@pytest.fixture
def held(harness: Harness) -> Held:
    session: Session = harness.session
    return next(iter(session._contexts.values()))


def test_of_contexts_that_are_done_the_newest_are_kept(held: Held) -> None:
    """Up to a bound, and up to an age."""
    kept = Kept()
    tokens = [f"token-{number}" for number in range(MAX_KEPT + 3)]
    for number, token in enumerate(tokens):
        kept.add(Held(held.context, held.place, held.ends_ms, token), float(number))
    assert kept.tokens == set(tokens[3:])
    assert not kept.forget(3.0)
    assert kept.forget(5.0)
    assert kept.tokens == set(tokens[5:])
    kept.take(tokens[5])
    assert kept.find(tokens[5]) is None
    assert kept.find(tokens[6]) is not None


def test_of_a_voice_that_was_silenced_nothing_is_kept(held: Held) -> None:
    """Nobody hears it again, not even what was spoken before."""
    kept = Kept()
    kept.add(held, 0.0)
    kept.silence(uuid4())
    assert kept.voices == {VOICE.voice}
    kept.silence(VOICE.voice)
    assert kept.tokens == frozenset()
