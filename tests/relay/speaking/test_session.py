"""relay.speaking.session: the contexts of one connection, their places, and what each of them may have."""

from __future__ import annotations

import hmac
from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from relay.entrance.admission import MEMORY_S, PROMISE_S, Bounds
from relay.errors import ContextExists, Refused
from relay.speaking.casting import Role
from relay.speaking.commands import Open, Resume
from relay.speaking.context import MAX_UNDER_WAY
from relay.speaking.outputs import Silence
from relay.speaking.session import MAX_CONTEXTS, Session, Terms
from tests.relay.conftest import IDLE_S, TENANT, TEXT, TIMEOUT_S, VOICE, Harness


def test_a_client_that_does_not_keep_up_gets_no_further_sentences(harness: Harness) -> None:
    """Without room in the outbox nothing more is synthesized; it goes on when there is room."""
    harness.room = False
    harness.send(type="text", context="c", text=TEXT)
    assert harness.jobs == []
    harness.room = True
    harness.take(harness.session.tick(TIMEOUT_S, IDLE_S))
    assert len(harness.jobs) == MAX_UNDER_WAY


def test_a_lost_stream_has_everything_under_way_submitted_again(harness: Harness) -> None:
    """After Redis lost its data both sentences are handed out again."""
    harness.send(type="text", context="c", text=TEXT)
    before = list(harness.jobs)
    harness.take(harness.session.resubmit())
    assert harness.jobs == before * 2


def test_a_cancelled_id_is_free_again_at_once(harness: Harness) -> None:
    """Interrupting twenty times in a row does not use up the contexts."""
    for _ in range(3 * MAX_CONTEXTS):
        harness.send(type="text", context="c", text=TEXT)
        harness.send(type="cancel", context="c")
        harness.open()
    assert len(harness.session.keys) == 1


def test_an_id_in_use_is_refused(harness: Harness) -> None:
    """Two contexts of one connection cannot share an id."""
    with pytest.raises(ContextExists):
        harness.open()


def test_a_connection_has_a_bound_of_contexts(harness: Harness) -> None:
    """One more than MAX_CONTEXTS is refused, and says that it can be tried again."""
    for number in range(MAX_CONTEXTS - 1):
        harness.open(f"d{number}")
    with pytest.raises(Refused) as caught:
        harness.open("one-more")
    assert caught.value.retryable


def test_a_closed_connection_gives_back_its_places_and_stops_the_workers() -> None:
    """When the client is gone its contexts are gone, with tombstones for what is under way."""
    harness = Harness(bounds=Bounds(max_contexts=1, max_tenant_contexts=1, max_queue=10), capacity=1)
    harness.open()
    harness.send(type="text", context="c", text=TEXT)
    harness.take(harness.session.close())
    assert harness.buried == [harness.jobs[0].context]
    harness.open()


def test_new_contexts_are_refused_when_the_queue_is_long(harness: Harness) -> None:
    """Existing listeners win over new ones."""
    harness.beat(lag=101)
    with pytest.raises(Refused) as caught:
        harness.open("d")
    assert caught.value.code == "overloaded"
    harness.send(type="text", context="c", text=TEXT)
    assert harness.jobs


def test_a_context_that_was_silent_for_long_needs_a_stream_again() -> None:
    """While it said nothing others took what there is; its listener is told at once and can come back."""
    harness = Harness(capacity=1)
    harness.open()
    harness.clock.now += PROMISE_S + MEMORY_S + 1
    harness.beat()
    harness.open("d")
    harness.send(type="text", context="d", text=TEXT)
    harness.send(type="text", context="c", text=TEXT)
    assert (harness.said[-1]["code"], harness.said[-1]["context"]) == ("overloaded", "c")
    assert harness.said[-1]["retry_after_ms"]
    assert len(harness.session.keys) == 1


def test_a_context_speaks_until_its_listener_has_heard_it(harness: Harness) -> None:
    """Sentences under way and audio not yet heard take a stream, silence does not."""
    harness.clock.now += PROMISE_S
    assert harness.admission.demand().speaking == 0
    harness.send(type="text", context="c", text="Well then, ")
    assert harness.admission.demand().speaking == 1
    for chunk in harness.spoken(harness.jobs[0]):
        harness.receive(chunk)
    harness.clock.now += 0.2
    assert harness.admission.demand().speaking == 1
    harness.clock.now += 0.1
    assert harness.admission.demand().speaking == 0


def test_only_a_chunk_that_was_owed_is_late(harness: Harness) -> None:
    """It is owed when the listener is dry and the sentence has been there for a fifth of a second."""
    harness.send(type="text", context="c", text=TEXT)
    chunks = harness.spoken(harness.jobs[0])
    harness.clock.now += 0.19
    harness.receive(chunks[0])
    harness.clock.now += 0.08
    harness.receive(chunks[1])
    assert harness.admission.demand().late == 0
    harness.clock.now += 0.1
    harness.receive(chunks[2])
    assert harness.admission.demand().late == 1


def test_the_tenants_own_limit_of_contexts_counts_where_it_is_lower() -> None:
    """Two are allowed to this tenant, thirty to any: the third is refused, and says how many are open."""
    harness = Harness(contexts=2)
    harness.open("a")
    harness.open("b")
    with pytest.raises(Refused) as caught:
        harness.open("c")
    assert caught.value.code == "too_many_contexts"
    harness.send(type="cancel", context="a")
    harness.open("c")


def test_text_beyond_the_days_quota_ends_its_context(harness: Harness) -> None:
    """What was accepted before is taken off; the error says when the next day begins and that no retry helps."""
    harness.left = len(TEXT) + 5
    harness.send(type="text", context="c", text=TEXT)
    assert harness.left == 5
    harness.send(type="text", context="c", text="Six or more.")
    error = harness.said[-1]
    assert (error["code"], error["context"], error["retryable"]) == ("quota_exceeded", "c", False)
    assert error["retry_after_ms"]
    assert harness.left == 5


def test_a_silenced_voice_ends_every_context_that_speaks_with_it(harness: Harness) -> None:
    """Speaking or idle: each is told so, frames that are not sent are taken back, workers stop."""
    harness.open("d")
    harness.send(type="text", context="c", text=TEXT)
    assert harness.session.voices == {VOICE.voice}
    outputs = harness.take(harness.session.silence(VOICE.voice))
    assert {output.context for output in outputs if isinstance(output, Silence)} == {1, 2}
    errors = [message for message in harness.said if message["type"] == "error"]
    assert [(error["code"], error["context"], error["retryable"]) for error in errors] == [
        ("voice_unavailable", "c", False),
        ("voice_unavailable", "d", False),
    ]
    assert harness.buried == [harness.jobs[0].context]
    assert harness.session.keys == frozenset()


def test_the_silence_of_another_voice_changes_nothing(harness: Harness) -> None:
    """Only its own contexts end."""
    assert harness.session.silence(uuid4()) == []
    assert harness.session.holds("c")


def test_a_context_ends_with_the_consent_that_its_voice_was_looked_up_by(harness: Harness) -> None:
    """To the tick: nobody waits for upkeep to find it; a voice whose consent has no end goes on."""
    ends = replace(VOICE, expires_at=datetime.fromtimestamp(harness.clock.now + 1, UTC))
    message = Open("d", str(VOICE.voice))
    harness.take(harness.session.open(message, Role(ends, hmac.new(b"key", digestmod="sha256"))))
    harness.clock.now += 0.9
    harness.take(harness.session.tick(TIMEOUT_S, IDLE_S))
    assert harness.session.holds("d")
    harness.clock.now += 0.1
    harness.take(harness.session.tick(TIMEOUT_S, IDLE_S))
    assert (harness.said[-1]["code"], harness.said[-1]["context"]) == ("voice_unavailable", "d")
    assert (harness.session.holds("c"), harness.session.holds("d")) == (True, False)


def test_a_context_whose_connection_is_lost_takes_no_stream(harness: Harness) -> None:
    """Workers stop and others may have its stream, while its place waits for it; resumed, it speaks again."""
    harness.send(type="text", context="c", text=TEXT)
    harness.clock.now += PROMISE_S
    harness.beat()
    assert harness.admission.demand().speaking == 1
    (token,) = harness.session.tokens
    harness.take(harness.session.suspend())
    assert harness.buried == [harness.jobs[0].context]
    harness.clock.now += 0.1
    demand = harness.admission.demand()
    assert (demand.speaking, demand.conversations) == (0, 1)
    harness.take(harness.session.tick(TIMEOUT_S, IDLE_S))
    assert len(harness.jobs) == MAX_UNDER_WAY
    other = Harness(clock=harness.clock, face=harness.face)
    other.session = Session("relay-1", Terms(TENANT, 40, other.reserve), harness.admission, harness.clock, lambda: True)
    command = Resume("c", token, 0, -1)
    suspended, outputs = other.session.take_over(command, harness.session)
    harness.take(outputs)
    assert (harness.said[-1]["code"], harness.said[-1]["context"]) == ("resumed", "c")
    other.take(other.session.resume(command, suspended))
    assert harness.admission.demand().speaking == 1
    assert [job.text for job in other.jobs] == [job.text for job in harness.jobs]
    assert harness.session.keys == frozenset()
