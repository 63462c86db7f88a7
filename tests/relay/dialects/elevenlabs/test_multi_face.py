"""Several contexts on one socket, as voice agents use them."""

from __future__ import annotations

from typing import Any

import pytest

from relay.dialects.elevenlabs.multi_face import MAX_TURNS
from relay.speaking.commands import Cancel, End, Flush, Open, Text
from tests.relay.dialects.elevenlabs.desk import (
    BYTES_PER_MS,
    TAIL_MS,
    WORD_MS,
    Desk,
    begin,
    finals,
    open_multi,
    read_audio,
    read_text,
)


def test_a_turn_is_spoken_and_ends_with_a_frame_of_its_own(multi: Desk) -> None:
    """`isFinal` comes once, last, and without audio; both spellings of the id are there."""
    begin(multi, "a")
    multi.say(context_id="a", flush=True)
    multi.say(context_id="a", close_context=True)
    multi.speak()
    assert len(read_audio(multi.frames)) == BYTES_PER_MS * (4 * WORD_MS + TAIL_MS)
    assert multi.frames[-1] == {
        "audio": None,
        "isFinal": True,
        "is_final": True,
        "alignment": None,
        "normalizedAlignment": None,
        "contextId": "a",
        "context_id": "a",
    }
    assert len(finals(multi.frames, "a")) == 1
    assert all(frame["contextId"] == frame["context_id"] == "a" for frame in multi.frames)
    assert multi.closed is None


def test_contexts_do_not_mix(multi: Desk) -> None:
    """Each has its own frames and its own last one."""
    for context in ("a", "b"):
        begin(multi, context, f"This is context {context}. ")
    for context in ("a", "b"):
        multi.say(context_id=context, flush=True)
        multi.say(context_id=context, close_context=True)
    multi.speak()
    for context in ("a", "b"):
        mine = [frame for frame in multi.frames if frame["contextId"] == context]
        assert read_text(mine) == f"This is context {context}. "
        assert [bool(frame["isFinal"]) for frame in mine].count(True) == 1
        assert mine[-1]["isFinal"]


def test_closing_after_a_flush_speaks_to_the_end(multi: Desk) -> None:
    """The end of a turn: LiveKit flushes an empty text, Pipecat nothing at all."""
    begin(multi, "a")
    multi.say(text="", context_id="a", flush=True)
    multi.say(context_id="a", close_context=True)
    assert not finals(multi.frames, "a")
    multi.speak()
    assert read_text(multi.frames) == "Good morning to you. "
    assert len(finals(multi.frames, "a")) == 1


def test_closing_what_was_not_flushed_stops_at_once(multi: Desk) -> None:
    """An interruption: nothing follows its last frame, and the workers are done with it."""
    begin(multi, "a")
    multi.speak_sentence()
    multi.say(text="And one more thing to say. ", context_id="a")
    multi.say(context_id="a", close_context=True)
    assert multi.frames[-1]["isFinal"]
    assert not multi.jobs
    count = len(multi.frames)
    multi.speak()
    assert len(multi.frames) == count


def test_in_auto_mode_a_sentence_that_is_heard_and_closed_was_interrupted() -> None:
    """LiveKit flushes every sentence with its text, and a turn that has ended with a flush of nothing."""
    desk = open_multi(auto_mode="true")
    for context, ends in (("interrupted", False), ("ended", True)):
        desk.say(text=" ", context_id=context, voice_settings={})
        desk.say(text="The first sentence is here. ", context_id=context, flush=True)
        desk.say(text="The second one follows. ", context_id=context, flush=True)
        desk.speak_sentence()
        if ends:
            desk.say(text="", context_id=context, flush=True)
        desk.say(context_id=context, close_context=True)
        assert bool(desk.jobs) == ends
        desk.speak()
    texts = [read_text([f for f in desk.frames if f["contextId"] == context]) for context in ("interrupted", "ended")]
    assert texts == ["The first sentence is here. ", "The first sentence is here. The second one follows. "]


def test_in_auto_mode_what_is_closed_before_it_is_heard_is_spoken() -> None:
    """Whoever sends a sentence with its flush and its close at once has not heard anything that was to be stopped."""
    desk = open_multi(auto_mode="true")
    desk.say(text="Good morning to you. ", context_id="a", flush=True)
    desk.say(context_id="a", close_context=True)
    desk.speak()
    assert read_text(desk.frames) == "Good morning to you. "


def test_closing_twice_stops_what_is_still_spoken(multi: Desk) -> None:
    """Pipecat closes a context when its turn has ended, and again when somebody interrupts it."""
    begin(multi, "a")
    multi.say(context_id="a", flush=True)
    multi.say(context_id="a", close_context=True)
    multi.say(context_id="a", close_context=True)
    multi.say(context_id="a", close_context=True)
    assert len(finals(multi.frames, "a")) == 1
    assert len([command for command in multi.commands if isinstance(command, Cancel)]) == 1
    assert not multi.jobs


def test_twenty_interruptions_in_a_row_leave_nothing(multi: Desk) -> None:
    """A closed context is no open one, however much of it is left."""
    for number in range(20):
        begin(multi, f"turn {number}", "This is going to be interrupted. ")
        multi.say(context_id=f"turn {number}", flush=True)
        multi.say(context_id=f"turn {number}", close_context=True)
        multi.say(context_id=f"turn {number}", close_context=True)
    begin(multi, "last")
    multi.say(context_id="last", flush=True)
    multi.say(context_id="last", close_context=True)
    multi.speak()
    assert multi.closed is None
    assert read_text([frame for frame in multi.frames if frame["contextId"] == "last"]) == "Good morning to you. "
    assert all(len(finals(multi.frames, f"turn {number}")) == 1 for number in range(20))
    assert not multi.harness.session.keys


def test_the_oldest_that_was_turned_away_from_makes_room_and_says_so(multi: Desk) -> None:
    """Of twenty turns that are flushed and closed and not heard, the newest are spoken, the oldest end in an error."""
    for number in range(20):
        begin(multi, f"turn {number}")
        multi.say(context_id=f"turn {number}", flush=True)
        multi.say(context_id=f"turn {number}", close_context=True)
    errors = [frame["contextId"] for frame in multi.frames if frame.get("error") == "superseded"]
    assert errors == [f"turn {number}" for number in range(20 - MAX_TURNS)]
    multi.speak()
    for number in range(20):
        assert len(finals(multi.frames, f"turn {number}")) == 1
    assert read_text([frame for frame in multi.frames if frame["contextId"] == "turn 19"])


@pytest.mark.parametrize(
    "message",
    [
        {"context_id": "nobody", "flush": True},
        {"context_id": "nobody", "close_context": True},
        {"context_id": "nobody", "text": ""},
        {"text": ""},
        {"flush": True},
        {"context_id": "nobody", "text": "", "flush": True},
    ],
)
def test_no_context_begins_with_less_than_a_text(multi: Desk, message: dict[str, Any]) -> None:
    """A flush of what never was, a sign of life: they open nothing, however often they come."""
    for _ in range(10):
        multi.say(**message)
    assert not multi.commands
    assert not multi.frames


def test_a_context_says_when_it_was_used_before(multi: Desk) -> None:
    """An id may be used again: its second context is spoken after the first, and ends by itself."""
    for text in ("The first of them. ", "The second one. "):
        multi.say(text=text, context_id="a")
        multi.say(context_id="a", flush=True)
        multi.say(context_id="a", close_context=True)
    multi.speak()
    assert read_text(multi.frames) == "The first of them. "
    multi.wait(0.25)
    multi.speak()
    assert read_text(multi.frames) == "The first of them. The second one. "
    assert [frame["isFinal"] for frame in multi.frames].count(True) == 2
    assert multi.frames[-1]["isFinal"]


def test_a_context_that_waited_goes_on_with_the_next_message(multi: Desk) -> None:
    """Whatever that is about; it does not wait for time to pass."""
    for text in ("The first of them. ", "The second one. "):
        multi.say(text=text, context_id="a")
        multi.say(context_id="a", flush=True)
        multi.say(context_id="a", close_context=True)
    multi.speak()
    multi.say(text="")
    multi.speak()
    assert read_text(multi.frames) == "The first of them. The second one. "


@pytest.mark.parametrize("name", ["context_id", "contextId"])
def test_both_spellings_are_read(multi: Desk, name: str) -> None:
    """Of a context's id."""
    multi.say(**{"text": "Good morning. ", name: "a"})
    multi.say(**{name: "a", "flush": True})
    multi.speak()
    assert {frame["contextId"] for frame in multi.frames} == {"a"}


def test_without_an_id_there_is_one_context(multi: Desk) -> None:
    """The default one, whose frames have no id."""
    multi.say(text="Good morning. ")
    multi.say(flush=True)
    multi.say(close_context=True)
    multi.speak()
    assert {frame["contextId"] for frame in multi.frames} == {None}
    assert multi.frames[-1]["isFinal"]


def test_closing_the_socket_speaks_what_was_said(multi: Desk) -> None:
    """Then it ends with 1000; what was opened and never used ends at once."""
    begin(multi, "a")
    begin(multi, "b", "")
    multi.say(close_socket=True)
    assert multi.closed is None
    multi.say(text="Too late. ", context_id="c")
    multi.speak()
    assert read_text(multi.frames) == "Good morning to you. "
    assert len(finals(multi.frames, "a")) == len(finals(multi.frames, "b")) == 1
    assert multi.closed is not None
    assert multi.closed.code == 1000


def test_a_context_in_which_nothing_is_said_is_closed() -> None:
    """After the time of the address; what it has is spoken, and signs of life keep it open."""
    desk = open_multi(inactivity_timeout="5")
    begin(desk, "a")
    begin(desk, "b", "")
    for _ in range(4):
        desk.wait(3)
        desk.say(text="", context_id="a")
    assert [frame.get("error") for frame in finals(desk.frames, "b")] == [None]
    desk.wait(6)
    desk.speak()
    assert len(finals(desk.frames, "a")) == 1
    assert desk.closed is None
    desk.wait(6)
    assert desk.closed is not None
    assert desk.closed.code == 1000


def test_a_sign_of_life_without_a_context_keeps_the_connection() -> None:
    """Pipecat sends one every ten seconds."""
    desk = open_multi(inactivity_timeout="20")
    for _ in range(10):
        desk.wait(10)
        desk.say(text="")
    assert desk.closed is None
    desk.wait(21)
    assert desk.closed is not None
    assert "20" in desk.closed.reason


def test_commands_go_by_names_of_our_own(multi: Desk) -> None:
    """A client's ids reach nobody but the client."""
    begin(multi, "../../etc")
    multi.say(context_id="../../etc", flush=True)
    multi.say(context_id="../../etc", close_context=True)
    assert {c.context for c in multi.commands if isinstance(c, Open | Text | Flush | End | Cancel)} == {"turn-1"}
