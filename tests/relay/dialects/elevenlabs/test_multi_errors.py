"""What goes wrong on a socket of several contexts: told once, with its context, to clients that read it differently."""

from __future__ import annotations

import json

import pytest

from relay.dialects.elevenlabs.multi_face import MAX_OPEN
from relay.speaking.commands import Open
from tests.relay.dialects.elevenlabs.desk import (
    MISSING,
    Desk,
    begin,
    open_multi,
    read_text,
)


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


def test_a_failure_is_told_with_its_context_and_ends_nothing_else(multi: Desk) -> None:
    """A turn that begins before its client has read of it is spoken."""
    begin(multi, "a")
    begin(multi, "b")
    for context in ("a", "b"):
        multi.fail()
        frame = multi.frames[-1]
        assert (frame["error"], frame["contextId"], frame["isFinal"]) == ("synthesis_failed", context, True)
        assert frame["message"] == "not this one"
    assert multi.closed is None
    begin(multi, "c")
    multi.speak()
    assert read_text([frame for frame in multi.frames if frame["contextId"] == "c"]) == "Good morning to you. "


def test_what_the_next_context_would_meet_too_ends_the_connection(multi: Desk) -> None:
    """With the reason before it, and after all that is still being spoken."""
    begin(multi, "a")
    multi.harness.left = 0
    begin(multi, "b", "One more. ")
    assert (multi.frames[-1]["error"], multi.frames[-1]["contextId"]) == ("quota_exceeded", "b")
    assert multi.closed is None
    multi.say(context_id="a", close_context=True)
    begin(multi, "c", "One more. ")
    assert multi.frames[-1]["error"] == "quota_exceeded"
    assert multi.closed is not None
    assert (multi.closed.code, multi.closed.reason) == (1008, "used up")


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
