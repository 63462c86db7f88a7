"""One text a socket, as the SDK sends it."""

from __future__ import annotations

import json

import pytest

from relay.speaking.commands import Open
from tests.relay.dialects.elevenlabs.desk import (
    MISSING,
    TAIL_MS,
    WORD_MS,
    Desk,
    open_stream,
    read_audio,
    read_text,
)

BYTES_PER_MS = 48
FIRST = {"text": " ", "try_trigger_generation": True, "voice_settings": None}


def test_a_text_is_spoken_to_its_end_and_the_socket_closed(stream: Desk) -> None:
    """Audio, then a last frame, then 1000; no frame has a context."""
    stream.say(**FIRST, generation_config={"chunk_length_schedule": [50]})
    stream.say(text="Good morning. ", try_trigger_generation=True)
    stream.say(text="Thank you for calling. ", try_trigger_generation=True)
    stream.say(text="")
    stream.speak()
    assert len(read_audio(stream.frames)) == BYTES_PER_MS * (6 * WORD_MS + 2 * TAIL_MS)
    assert read_text(stream.frames) == "Good morning. Thank you for calling. "
    assert [frame["isFinal"] for frame in stream.frames].count(True) == 1
    assert stream.frames[-1]["isFinal"]
    assert stream.frames[-1]["audio"] is None
    assert not any("message" in frame or "contextId" in frame for frame in stream.frames)
    assert stream.closed is not None
    assert stream.closed.code == 1000


def test_the_first_message_may_hold_the_text(stream: Desk) -> None:
    """And all of it; whatever comes after the end is passed over."""
    stream.say(text="Good morning.", flush=True)
    stream.say(text="")
    stream.say(text="Too late.")
    stream.say(text="")
    stream.speak()
    assert read_text(stream.frames) == "Good morning. "
    assert len([c for c in stream.commands if isinstance(c, Open)]) == 1


def test_a_flush_speaks_what_is_there_and_ends_nothing(stream: Desk) -> None:
    """Also one with an empty text."""
    stream.say(**FIRST)
    stream.say(text="Good morning")
    assert not stream.jobs
    stream.say(text="", flush=True)
    assert stream.jobs
    stream.speak()
    assert stream.closed is None


@pytest.mark.parametrize("text", ["", "  ", "😀🎉", "…"])
def test_a_text_without_a_sound_is_an_error(stream: Desk, text: str) -> None:
    """Not silence that looks like success."""
    stream.say(**FIRST)
    if text:
        stream.say(text=text)
    stream.say(text="")
    assert stream.frames[-1]["error"] == "input_text_empty"
    assert stream.frames[-1]["message"]
    assert stream.closed is not None
    assert stream.closed.code == 1008


@pytest.mark.parametrize(
    "raw", ["nonsense", "[1]", b"bytes", json.dumps({"text": ["x"]}), json.dumps({"text": "x" * 10_001})]
)
def test_what_cannot_be_read_ends_the_stream(stream: Desk, raw: str | bytes) -> None:
    """With the reason in a message that has the key by which the SDK knows an error, and in the close."""
    stream.say(**FIRST)
    stream.say_raw(raw)
    assert stream.frames[-1]["message"]
    assert stream.frames[-1]["code"] == 1008
    assert stream.closed is not None
    assert stream.closed.reason


def test_a_voice_that_is_not_there_is_told_in_a_message() -> None:
    """The SDK raises it with its text."""
    desk = open_stream()
    desk.face._voice = MISSING
    desk.say(**FIRST)
    assert desk.frames[-1]["error"] == "voice_not_found"
    assert desk.closed is not None
    assert desk.closed.code == 1008


def test_a_failure_in_the_middle_is_the_last_frame(stream: Desk) -> None:
    """The audio before it was sent; nothing says that this was all."""
    stream.say(**FIRST)
    stream.say(text="Good morning. Thank you for calling. ")
    stream.speak_sentence()
    stream.fail()
    assert read_audio(stream.frames)
    assert stream.frames[-1]["error"] == "synthesis_failed"
    assert stream.frames[-1]["unspoken"] == "Thank you for calling. "
    assert not any(frame.get("isFinal") for frame in stream.frames)
    assert stream.closed is not None
    assert stream.closed.code == 1008


def test_a_stream_that_nobody_goes_on_with_is_ended() -> None:
    """With the reason before the close; a space keeps it open, and what was ended is not waited for."""
    desk = open_stream(inactivity_timeout="5")
    desk.say(**FIRST)
    desk.wait(4)
    desk.say(text=" ")
    desk.wait(4)
    assert desk.closed is None
    desk.wait(2)
    assert desk.frames[-1]["error"] == "input_timeout_exceeded"
    assert desk.closed is not None
    assert desk.closed.code == 1008


def test_who_has_ended_the_text_may_wait_for_it() -> None:
    """However long it takes to speak."""
    desk = open_stream(inactivity_timeout="5")
    desk.say(**FIRST)
    desk.say(text="Good morning. ")
    desk.say(text="")
    desk.wait(10)
    desk.speak()
    assert desk.closed is not None
    assert desk.closed.code == 1000


def test_settings_that_change_end_the_stream(stream: Desk) -> None:
    """They come with the first message."""
    stream.say(text=" ", voice_settings={"speed": 1.0})
    stream.say(text="Good morning. ", voice_settings={"speed": 1.2})
    assert "voice_settings" in stream.frames[-1]["message"]
    assert stream.closed is not None
    assert stream.closed.code == 1008


def test_a_compressed_stream_is_whole() -> None:
    """What the encoder held back comes before the last frame."""
    desk = open_stream(output_format="mp3_44100_128")
    desk.say(text="Good morning. ")
    desk.say(text="")
    desk.speak()
    assert len(read_audio(desk.frames)) >= 128_000 // 8 * (2 * WORD_MS + TAIL_MS) // 1000
    assert desk.frames[-1]["isFinal"]
