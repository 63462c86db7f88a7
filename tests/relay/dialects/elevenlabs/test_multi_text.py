"""The text of a context on its way in, and its audio and times on their way out."""

from __future__ import annotations

import pytest

from relay.speaking.commands import Flush, Text
from tests.relay.dialects.elevenlabs.desk import (
    BYTES_PER_MS,
    CHUNK_MS,
    TAIL_MS,
    WORD_MS,
    Desk,
    begin,
    open_multi,
    read_audio,
    read_text,
)


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
