"""relay.speaking.context: order, duplicates, losses, cancellation, ends."""

from __future__ import annotations

import hmac
import itertools
import random
from dataclasses import replace
from uuid import uuid4

import pytest

from relay.errors import InvalidMessage, NothingToSay, UnknownContext
from relay.speaking.commands import Flush
from relay.speaking.context import MAX_RESUBMITS, MAX_UNDER_WAY, TORN_AFTER_S, Context
from relay.speaking.context_state import TRANSITIONS, Address, ContextState
from relay.speaking.events import Cancelled
from relay.speaking.flushes import MAX_FLUSHES
from relay.speaking.outputs import Bury, Note, Silence, Tell
from relay.speaking.script import MAX_TEXT
from storage.errors import IllegalTransition
from storage.streams.wire import Failure
from tests.relay.conftest import IDLE_S, TEXT, TIMEOUT_S, VOICE, FakeClock, Harness


def test_a_sentence_goes_out_as_soon_as_it_is_complete(harness: Harness) -> None:
    """Text may arrive in pieces; the job is there when the first clause is, not when the context ends."""
    harness.send(type="text", context="c", text="Well then, ")
    assert [job.text for job in harness.jobs] == ["Well then,"]
    assert harness.said[-1] == {"type": "sentence", "context": "c", "sentence": 0, "start": 0, "end": 10}


def test_a_context_plays_every_chunk_once_in_order_and_is_done(harness: Harness) -> None:
    """The plain way: sentences, frames, sentence_end each, done with the sums."""
    harness.send(type="text", context="c", text=TEXT)
    harness.send(type="end", context="c")
    while harness.jobs:
        for chunk in harness.spoken(harness.jobs.pop(0)):
            harness.receive(chunk)
    assert harness.heard() == [(sentence, number) for sentence in range(3) for number in range(3)]
    assert harness.said[-1] == {"type": "done", "context": "c", "sentences": 3, "samples": 3 * 3 * 1920}
    assert harness.types().count("sentence_end") == 3
    assert harness.session.keys == frozenset()


def test_no_more_sentences_are_under_way_than_allowed(harness: Harness) -> None:
    """A long text does not flood the queue: the next sentence follows when one is complete."""
    harness.send(type="text", context="c", text=TEXT * 20)
    assert len(harness.jobs) == MAX_UNDER_WAY
    for chunk in harness.spoken(harness.jobs[0]):
        harness.receive(chunk)
    assert len(harness.jobs) == MAX_UNDER_WAY + 1


@pytest.mark.parametrize("seed", range(20))
def test_duplicates_and_any_interleaving_give_the_same_audio(harness: Harness, seed: int) -> None:
    """However two workers' chunks of two sentences mix, each sample goes out once and in order."""
    random_source = random.Random(seed)
    harness.send(type="text", context="c", text=TEXT)
    harness.send(type="end", context="c")
    streams = [harness.spoken(job, 5) for job in harness.jobs for _ in range(2)]
    while any(streams):
        harness.receive(random_source.choice([stream for stream in streams if stream]).pop(0))
    for job in harness.jobs[MAX_UNDER_WAY:]:
        for chunk in harness.spoken(job, 5):
            harness.receive(chunk)
    assert harness.heard() == [(sentence, number) for sentence in range(3) for number in range(5)]
    assert harness.types()[-1] == "done"


def test_chunks_of_a_later_sentence_wait_for_the_earlier(harness: Harness) -> None:
    """Sentences are heard in the order of the text, whichever is ready first."""
    harness.send(type="text", context="c", text=TEXT)
    first, second = harness.jobs[:2]
    for chunk in harness.spoken(second):
        harness.receive(chunk)
    assert harness.frames == []
    for chunk in harness.spoken(first):
        harness.receive(chunk)
    assert harness.heard() == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


def test_a_lost_chunk_has_the_sentence_spoken_again(harness: Harness) -> None:
    """A hole is not skipped: the job is submitted again, and what comes twice is dropped."""
    harness.send(type="text", context="c", text="Only one sentence here. ")
    chunks = harness.spoken(harness.jobs[0], 4)
    harness.receive(chunks[0])
    harness.receive(chunks[2])
    assert harness.heard() == [(0, 0)]
    harness.clock.now += TORN_AFTER_S + 0.1
    harness.take(harness.session.tick(TIMEOUT_S, IDLE_S))
    assert len(harness.jobs) == 2
    for chunk in chunks:
        harness.receive(chunk)
    assert harness.heard() == [(0, 0), (0, 1), (0, 2), (0, 3)]


def test_a_sentence_that_is_torn_again_and_again_fails(harness: Harness) -> None:
    """Resubmitting has a bound."""
    harness.send(type="text", context="c", text="Only one sentence here. ")
    chunks = harness.spoken(harness.jobs[0], 4)
    for _ in range(MAX_RESUBMITS + 1):
        harness.receive(chunks[3])
        harness.clock.now += TORN_AFTER_S + 0.1
        harness.take(harness.session.tick(TIMEOUT_S, IDLE_S))
    assert harness.said[-1]["code"] == "synthesis_failed"
    assert len(harness.jobs) == 1 + MAX_RESUBMITS


def test_a_cancelled_context_is_silent_at_once(harness: Harness) -> None:
    """Frames not yet sent are forgotten, workers are told, and late chunks go nowhere."""
    harness.send(type="text", context="c", text=TEXT)
    job = harness.jobs[0]
    harness.receive(harness.spoken(job)[0])
    outputs = harness.send(type="cancel", context="c")
    assert outputs[:-1] == [Silence(1), Bury(job.context), Tell(Cancelled("c"))]
    assert isinstance(outputs[-1], Note)
    heard = harness.heard()
    for chunk in harness.spoken(job):
        harness.receive(chunk)
    assert harness.heard() == heard
    with pytest.raises(UnknownContext):
        harness.send(type="text", context="c", text="More.")


def test_results_of_another_context_change_nothing(harness: Harness) -> None:
    """A chunk with another context's key is nobody's here."""
    harness.send(type="text", context="c", text=TEXT)
    chunk = harness.spoken(harness.jobs[0])[0]
    assert harness.receive(replace(chunk, context="somebody else's")) == []


def test_a_failed_sentence_ends_its_context_and_no_other(harness: Harness) -> None:
    """The error names the context; the others speak on."""
    harness.open("d")
    harness.send(type="text", context="c", text="One sentence here. ")
    harness.send(type="text", context="d", text="One sentence there. ")
    first, second = harness.jobs
    harness.receive(Failure(first.context, 0, "voice_unavailable", "deleted", False))
    error = harness.said[-1]
    assert (error["type"], error["code"], error["context"]) == ("error", "voice_unavailable", "c")
    for chunk in harness.spoken(second):
        harness.receive(chunk)
    assert harness.types()[-1] == "sentence_end"


def test_a_sentence_without_a_sound_is_passed_over(harness: Harness) -> None:
    """What the workers cannot pronounce ends its sentence with no samples, and the next is heard."""
    harness.send(type="text", context="c", text="你好你好。 Then some English. ")
    harness.send(type="end", context="c")
    harness.receive(Failure(harness.jobs[0].context, 0, "nothing_to_say", "no sound", False))
    for chunk in harness.spoken(harness.jobs[1]):
        harness.receive(chunk)
    assert harness.types()[-3:] == ["sentence_end", "sentence_end", "done"]


@pytest.mark.parametrize("text", ["", " ", "\n\n", "🎉🎉", "...", "-", "‑", "😄 🍺 🥪"])
def test_a_text_without_a_sound_is_an_error_with_the_fix(harness: Harness, text: str) -> None:
    """Empty, blank, emoji-only and dash-only contexts end with nothing_to_say, and no job is made of them."""
    harness.send(type="text", context="c", text=text)
    harness.send(type="end", context="c")
    assert harness.jobs == []
    assert (harness.said[-1]["code"], harness.said[-1]["context"]) == ("nothing_to_say", "c")


def test_too_much_text_ends_the_context(harness: Harness) -> None:
    """A context's text has a bound, whatever it is cut into."""
    for _ in range(MAX_TEXT // 10_000):
        harness.send(type="text", context="c", text="word " * 2000)
    harness.send(type="text", context="c", text="one more")
    assert (harness.said[-1]["type"], harness.said[-1]["code"]) == ("error", "text_too_long")


def test_a_sentence_that_no_worker_speaks_times_out(harness: Harness) -> None:
    """Nothing waits for ever."""
    harness.send(type="text", context="c", text="Nobody is there to say it. ")
    harness.clock.now += TIMEOUT_S + 1
    harness.take(harness.session.tick(TIMEOUT_S, IDLE_S))
    assert (harness.said[-1]["code"], harness.said[-1]["retryable"]) == ("timeout", True)
    assert harness.buried == [harness.jobs[0].context]


def test_a_context_that_its_client_forgot_ends(harness: Harness) -> None:
    """All is spoken and nothing more comes: the place is needed for others."""
    harness.send(type="text", context="c", text="One sentence here. ")
    for chunk in harness.spoken(harness.jobs[0]):
        harness.receive(chunk)
    harness.clock.now += IDLE_S - 1
    harness.beat()
    harness.send(type="text", context="c", text="half a ")
    harness.clock.now += IDLE_S - 1
    harness.take(harness.session.tick(TIMEOUT_S, IDLE_S))
    assert harness.session.keys
    harness.clock.now += 2
    harness.take(harness.session.tick(TIMEOUT_S, IDLE_S))
    assert (harness.said[-1]["code"], harness.said[-1]["context"]) == ("idle", "c")


def test_the_deadline_of_a_job_is_when_the_listener_runs_dry(harness: Harness) -> None:
    """The first is urgent at once; the next has as long as the audio before it lasts."""
    harness.send(type="text", context="c", text=TEXT)
    assert harness.jobs[0].deadline_ms == harness.clock.unix_ms()
    for chunk in harness.spoken(harness.jobs[0], 10):
        harness.receive(chunk)
    assert harness.jobs[-1].deadline_ms == pytest.approx(harness.clock.unix_ms() + 800, abs=1)


def test_who_hears_faster_runs_dry_sooner(harness: Harness) -> None:
    """The workers are told how fast, and take the deadline for what it is."""
    harness.send(type="open", context="d", voice=str(VOICE.voice), speed=2.0)
    harness.send(type="text", context="d", text=TEXT)
    assert harness.jobs[0].speed_percent == 200
    for chunk in harness.spoken(harness.jobs[0], 10):
        harness.receive(chunk)
    assert harness.jobs[-1].deadline_ms == pytest.approx(harness.clock.unix_ms() + 400, abs=1)


def test_text_after_the_end_is_refused(harness: Harness) -> None:
    """`end` means what it says."""
    harness.send(type="text", context="c", text=TEXT)
    harness.send(type="end", context="c")
    with pytest.raises(InvalidMessage):
        harness.send(type="text", context="c", text="More.")
    harness.send(type="cancel", context="c")
    assert harness.types()[-1] == "cancelled"


def test_what_a_sentence_waited_for_is_told_without_its_computing(harness: Harness) -> None:
    """The worker says how long it computed; the rest of the time to the first chunk is overhead."""
    harness.send(type="text", context="c", text=TEXT)
    chunks = [replace(chunk, computed_us=12_000) for chunk in harness.spoken(harness.jobs[0])]
    harness.clock.now += 0.015
    for chunk in chunks:
        harness.receive(chunk)
    (end,) = (message for message in harness.said if message["type"] == "sentence_end")
    assert (end["first_audio_ms"], end["overhead_ms"]) == (15.0, 3.0)


def test_a_failed_context_is_heard_as_far_as_it_was_spoken(harness: Harness) -> None:
    """What waits to be sent is not taken back, and `unspoken` begins with the first sentence that is not whole."""
    harness.send(type="text", context="c", text=TEXT)
    for chunk in harness.spoken(harness.jobs[0]):
        harness.receive(chunk)
    harness.receive(harness.spoken(harness.jobs[1])[0])
    outputs = harness.receive(Failure(harness.jobs[1].context, 1, "synthesis_failed", "broken", True))
    assert not any(isinstance(output, Silence) for output in outputs)
    assert harness.said[-1]["unspoken"] == {"start": TEXT.index("The second"), "end": len(TEXT)}


def test_flushes_are_answered_in_order_when_all_before_them_is_spoken(harness: Harness) -> None:
    """One with nothing before it at once, two behind one sentence both with it."""
    harness.send(type="flush", context="c")
    assert harness.said[-1] == {"type": "flushed", "context": "c", "flush": 0}
    harness.send(type="text", context="c", text="half a sentence")
    harness.send(type="flush", context="c")
    harness.send(type="flush", context="c")
    harness.send(type="text", context="c", text="More. ")
    assert harness.types().count("flushed") == 1
    for chunk in harness.spoken(harness.jobs[0]):
        harness.receive(chunk)
    flushes = [message["flush"] for message in harness.said if message["type"] == "flushed"]
    assert flushes == [0, 1, 2]
    assert harness.types()[-3:] == ["sentence_end", "flushed", "flushed"]


def test_flushes_have_a_bound(harness: Harness) -> None:
    """A client that only flushes is told so, and its context ends."""
    for _ in range(MAX_FLUSHES):
        harness.session.handle(Flush("c"))
    harness.send(type="flush", context="c")
    assert (harness.said[-1]["code"], harness.said[-1]["field"]) == ("text_too_long", "type")


@pytest.mark.parametrize("deed", ["push", "flush", "end", "cancel", "fail"])
@pytest.mark.parametrize("end", ["cancel", "fail"])
def test_nothing_can_be_done_with_a_context_that_has_ended(end: str, deed: str) -> None:
    """Whoever tries it has a fault: IllegalTransition."""
    context = make_context()
    arguments: dict[str, list[object]] = {"push": ["text"], "fail": [NothingToSay()]}
    getattr(context, end)(*arguments.get(end, []))
    with pytest.raises(IllegalTransition):
        getattr(context, deed)(*arguments.get(deed, []))


@pytest.mark.parametrize("deed", ["push", "flush", "end"])
def test_after_its_end_a_text_takes_nothing_more(deed: str) -> None:
    """The same for what may only be said before `end`."""
    context = make_context()
    context.push("One sentence here.")
    context.end()
    with pytest.raises(IllegalTransition):
        getattr(context, deed)(*["text"] * (deed == "push"))
    context.cancel()


@pytest.mark.parametrize(("state", "wanted"), list(itertools.product(ContextState, repeat=2)))
def test_each_step_that_the_table_does_not_have_raises(state: ContextState, wanted: ContextState) -> None:
    """And each that it has is taken."""
    context = make_context()
    context.state = state
    if wanted in TRANSITIONS[state]:
        context._move(wanted)
        assert context.state is wanted
    else:
        with pytest.raises(IllegalTransition):
            context._move(wanted)


def make_context() -> Context:
    address = Address("key", "c", 1, "relay", uuid4(), uuid4(), 1)
    return Context(address, FakeClock(), lambda: True, hmac.new(b"key", digestmod="sha256"))
