"""Several contexts on one socket, as voice agents use them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from relay.dialects.elevenlabs.multi_face import MAX_OPEN, MAX_TURNS
from relay.speaking.commands import Cancel, End, Flush, Open, Text
from tests.relay.dialects.elevenlabs.desk import (
    CHUNK_MS,
    MISSING,
    TAIL_MS,
    WORD_MS,
    Desk,
    open_multi,
    read_audio,
    read_text,
)

BYTES_PER_MS = 48


def begin(desk: Desk, context: str, text: str = "Good morning to you. ", **more: Any) -> None:
    """The first messages of a context, as the plugins send them."""
    desk.say(text=" ", context_id=context, **more)
    if text:
        desk.say(text=text, context_id=context)


def finals(frames: list[dict[str, Any]], context: str) -> list[dict[str, Any]]:
    return [frame for frame in frames if frame["contextId"] == context and frame.get("isFinal")]


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


def test_the_alignment_spells_what_was_written(multi: Desk) -> None:
    """Both spellings of its key hold the same; a word ends with a space."""
    begin(multi, "a", "Good morning.")
    multi.say(context_id="a", flush=True)
    multi.speak()
    assert read_text(multi.frames) == "Good morning. "
    for frame in multi.frames:
        if frame["alignment"]:
            assert frame["alignment"] == frame["normalizedAlignment"]
            assert frame["alignment"]["charDurationsMs"] == frame["alignment"]["charsDurationsMs"]


def test_a_clock_that_adds_up_tiles_is_exact() -> None:
    """What Pipecat does: each alignment counts from zero, and its end moves the clock."""
    desk = open_multi()
    begin(desk, "a", "The first sentence is here. The second one follows. And then comes the third. ")
    desk.say(context_id="a", flush=True)
    desk.speak()
    clock_ms = 0
    starts: dict[str, int] = {}
    for frame in desk.frames:
        if alignment := frame["alignment"]:
            for char, start in zip(alignment["chars"], alignment["charStartTimesMs"], strict=True):
                starts.setdefault(char, clock_ms + start)
            clock_ms += alignment["charStartTimesMs"][-1] + alignment["charDurationsMs"][-1]
    assert clock_ms == len(read_audio(desk.frames)) // BYTES_PER_MS == 14 * WORD_MS + 3 * TAIL_MS
    assert starts["A"] == 9 * WORD_MS + 2 * TAIL_MS


def test_with_sync_alignment_normalized_times_count_from_the_beginning() -> None:
    """What LiveKit does: it asks for this, reads that one, and adds nothing."""
    desk = open_multi(sync_alignment="true")
    begin(desk, "a", "The first sentence is here. The second one follows. ")
    desk.say(context_id="a", flush=True)
    desk.speak()
    starts = [
        ms for frame in desk.frames if (a := frame["normalizedAlignment"]) is not None for ms in a["charStartTimesMs"]
    ]
    assert starts == sorted(starts)
    assert starts[-2] >= 8 * WORD_MS + TAIL_MS
    assert all(frame["alignment"]["charStartTimesMs"][0] == 0 for frame in desk.frames if frame["alignment"])


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


def test_more_open_contexts_than_may_be_end_the_connection(multi: Desk) -> None:
    """The error names the context and comes before the close."""
    for number in range(MAX_OPEN):
        begin(multi, f"turn {number}", "")
    begin(multi, "one more", "")
    assert multi.frames[-1]["error"] == "max_active_conversations"
    assert multi.frames[-1]["contextId"] == multi.frames[-1]["context_id"] == "one more"
    assert multi.frames[-1]["code"] == 1008
    assert multi.closed is not None
    assert multi.closed.code == 1008
    assert multi.closed.reason


def test_a_closed_context_frees_its_place_at_once(multi: Desk) -> None:
    """Not only when it was spoken out."""
    for number in range(3 * MAX_OPEN):
        if number >= MAX_OPEN:
            multi.say(context_id=f"turn {number - MAX_OPEN}", flush=True)
            multi.say(context_id=f"turn {number - MAX_OPEN}", close_context=True)
        begin(multi, f"turn {number}", "Still being spoken. ")
    assert multi.closed is None


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


def test_settings_that_change_end_the_connection(multi: Desk) -> None:
    """The same again, or none, is no change."""
    begin(multi, "a", voice_settings={"stability": 0.5, "speed": 1.1})
    multi.say(text="More. ", context_id="a", voice_settings={"stability": 0.5, "speed": 1.1})
    multi.say(text="More. ", context_id="a", voice_settings=None)
    multi.say(text="More. ", context_id="a", voice_settings={})
    assert multi.closed is None
    multi.say(text="More. ", context_id="a", voice_settings={"stability": 0.6})
    assert multi.frames[-1]["contextId"] == "a"
    assert "voice_settings" in multi.frames[-1]["message"]
    assert multi.closed is not None
    assert multi.closed.code == 1008


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


def test_white_space_alone_keeps_alive_and_separates() -> None:
    """It reaches the core with the next text, so that it takes no place; a token may be a space."""
    desk = open_multi()
    begin(desk, "a", "Good")
    desk.say(text=" ", context_id="a")
    desk.say(text="  ", context_id="a")
    desk.say(text="morning.", context_id="a")
    assert [c.text for c in desk.commands if isinstance(c, Text)] == ["Good", " morning."]


def test_a_line_that_ends_in_a_piece_of_its_own_ends(multi: Desk) -> None:
    """A heading is not read into what follows it."""
    for token in ("Heading", "\n", "\n", "Text"):
        multi.say(text=token, context_id="a")
    assert len(multi.jobs) == 1
    assert multi.jobs[0].text == "Heading"


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


def test_what_has_no_sound_is_an_error_that_ends_its_context_alone(multi: Desk) -> None:
    """An emoji is no silence: the error is the last frame for those who read errors and for those who do not."""
    begin(multi, "a", "😀")
    multi.say(context_id="a", flush=True)
    multi.say(context_id="a", close_context=True)
    frame = multi.frames[-1]
    assert (frame["error"], frame["contextId"], frame["isFinal"]) == ("input_text_empty", "a", True)
    assert frame["message"]
    assert multi.closed is None


def test_a_context_that_was_never_used_ends_quietly(multi: Desk) -> None:
    """An interruption may come before the first word."""
    begin(multi, "a", "")
    multi.say(context_id="a", flush=True)
    multi.say(context_id="a", close_context=True)
    assert [frame.get("error") for frame in multi.frames] == [None]
    assert multi.frames[-1]["isFinal"]


def test_a_failure_is_told_with_its_context_and_seen_by_who_reads_no_errors(multi: Desk) -> None:
    """When no other context is open the connection ends, with the reason before it."""
    begin(multi, "a")
    begin(multi, "b")
    multi.fail()
    assert (multi.frames[-1]["error"], multi.frames[-1]["contextId"]) == ("synthesis_failed", "a")
    assert multi.closed is None
    multi.fail()
    assert (multi.frames[-1]["error"], multi.frames[-1]["contextId"]) == ("synthesis_failed", "b")
    assert multi.closed is not None
    assert multi.closed.code == 1008
    assert multi.closed.reason == "not this one"


def test_an_error_holds_the_text_that_it_leaves_unsaid(multi: Desk) -> None:
    """So that a client can say it on another connection (CQ8)."""
    begin(multi, "a", "The first sentence is here. The second one follows. ")
    multi.say(text="And then comes the third. ", context_id="a", flush=True)
    multi.speak_sentence()
    multi.fail()
    assert multi.frames[-1]["unspoken"] == "The second one follows. And then comes the third. "


def test_a_voice_that_is_gone_is_an_error_of_the_context() -> None:
    """The socket was opened while it was there."""
    desk = open_multi()
    desk.face._voice = MISSING
    begin(desk, "a")
    assert (desk.frames[0]["error"], desk.frames[0]["contextId"]) == ("voice_not_found", "a")
    assert desk.closed is not None
    assert len(desk.frames) == 1


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ("nonsense", None),
        ("[]", None),
        (b"\x00", None),
        (json.dumps({"text": 5, "context_id": "a"}), "text"),
        (json.dumps({"text": "x", "context_id": "a", "flush": "perhaps"}), "flush"),
        (json.dumps({"text": "x", "context_id": "y" * 300}), "context_id"),
        (json.dumps({"text": "\ud800", "context_id": "a"}), "text"),
        (json.dumps({"text": "x" * 10_001, "context_id": "a"}), "text"),
        (json.dumps({"text": "x", "context_id": "a", "voice_settings": {"speed": 99}}), "voice_settings.speed"),
    ],
)
def test_what_cannot_be_read_is_answered(multi: Desk, raw: str | bytes, field: str | None) -> None:
    """With the field at fault, and with the context where there is one."""
    multi.say_raw(raw)
    frame = multi.frames[-1]
    assert frame["error"] in ("invalid_input_message", "max_character_limit_exceeded")
    assert frame.get("param") == field
    assert frame["contextId"] == ("a" if field and field != "context_id" else None)
    assert not [command for command in multi.commands if isinstance(command, Open)]


def test_a_text_that_cannot_be_read_ends_its_context(multi: Desk) -> None:
    """What would be spoken without it is not what was to be said."""
    begin(multi, "a")
    multi.say(text="x" * 10_001, context_id="a")
    assert (multi.frames[-1]["error"], multi.frames[-1]["isFinal"]) == ("max_character_limit_exceeded", True)
    assert not multi.jobs


def test_sentences_of_auto_mode_are_not_glued_together() -> None:
    """Pipecat sends them without the space between; each is spoken when it is there."""
    desk = open_multi(auto_mode="true")
    begin(desk, "a", "This is the first one.")
    assert len(desk.jobs) == 1
    desk.say(text="And here is another!", context_id="a")
    desk.say(text="Yes.", context_id="a")
    desk.say(text="Bye.", context_id="a")
    desk.say(context_id="a", flush=True)
    desk.say(context_id="a", close_context=True)
    desk.speak()
    assert read_text(desk.frames) == "This is the first one. And here is another! Yes. Bye. "


def test_tokens_are_passed_on_as_they_are(multi: Desk) -> None:
    """Without auto mode nothing is put between them."""
    for token in ("Tele", "com", ".", " Yes", "."):
        multi.say(text=token, context_id="a")
    assert [c.text for c in multi.commands if isinstance(c, Text)] == ["Tele", "com", ".", " Yes", "."]
    assert not [c for c in multi.commands if isinstance(c, Flush)]


def test_breaks_are_silence_where_they_were_asked_for() -> None:
    """As long as they say, between what is before and what is behind, and the times know of it."""
    desk = open_multi(enable_ssml_parsing="true")
    begin(desk, "a", 'Good morning. <break time="0.5s"/> Good evening. ')
    desk.say(context_id="a", flush=True)
    desk.say(context_id="a", close_context=True)
    desk.speak()
    spoken_ms = 4 * WORD_MS + 2 * TAIL_MS
    assert len(read_audio(desk.frames)) == BYTES_PER_MS * (spoken_ms + 500)
    assert read_text(desk.frames).split() == ["Good", "morning.", "Good", "evening."]
    clock_ms = sum(a["charStartTimesMs"][-1] + a["charDurationsMs"][-1] for f in desk.frames if (a := f["alignment"]))
    assert clock_ms == spoken_ms + 500


def test_a_break_is_as_long_at_any_speed() -> None:
    """What was asked for in seconds is not scaled."""
    desk = open_multi(enable_ssml_parsing="true")
    begin(desk, "a", 'Good morning. <break time="2s"/> Good evening. ', voice_settings={"speed": 2.0})
    desk.say(context_id="a", flush=True)
    desk.say(context_id="a", close_context=True)
    desk.speak()
    length_ms = (4 * WORD_MS + 2 * TAIL_MS) / 2 + 2000
    assert len(read_audio(desk.frames)) == pytest.approx(BYTES_PER_MS * length_ms, abs=2 * BYTES_PER_MS)


def test_tags_are_text_where_nobody_asked_for_them(multi: Desk) -> None:
    """Nothing is taken out of it."""
    begin(multi, "a", '<break time="0.5s"/> Good morning. ')
    assert [c.text for c in multi.commands if isinstance(c, Text)] == ['<break time="0.5s"/> Good morning. ']


def test_speed_is_honoured_and_times_scaled() -> None:
    """The other settings make no difference."""
    desk = open_multi()
    begin(desk, "a", voice_settings={"speed": 1.2, "stability": 0.1, "style": 1.0})
    desk.say(context_id="a", flush=True)
    desk.say(context_id="a", close_context=True)
    desk.speak()
    length_ms = (4 * WORD_MS + TAIL_MS) / 1.2
    assert len(read_audio(desk.frames)) == pytest.approx(BYTES_PER_MS * length_ms, abs=2 * BYTES_PER_MS)
    clock_ms = sum(a["charStartTimesMs"][-1] + a["charDurationsMs"][-1] for f in desk.frames if (a := f["alignment"]))
    assert clock_ms == round(length_ms)


def test_the_first_chunk_is_sent_when_it_is_there(multi: Desk) -> None:
    """No frame waits for the characters that it belongs to."""
    begin(multi, "a")
    multi.speak()
    first = next(frame for frame in multi.frames if frame["audio"])
    assert len(read_audio([first])) == BYTES_PER_MS * CHUNK_MS
    assert first["alignment"] is None


def test_commands_go_by_names_of_our_own(multi: Desk) -> None:
    """A client's ids reach nobody but the client."""
    begin(multi, "../../etc")
    multi.say(context_id="../../etc", flush=True)
    multi.say(context_id="../../etc", close_context=True)
    assert {c.context for c in multi.commands if isinstance(c, Open | Text | Flush | End | Cancel)} == {"turn-1"}
