"""relay.dialects.cartesia.face, on a real session."""

from __future__ import annotations

import json

import pytest

from relay.dialects.cartesia.face import MAX_OVER, MAX_SILENT
from tests.relay.conftest import VOICE
from tests.relay.dialects.cartesia.wire import RAW, Wire, audio, kinds, sound, words

FIRST, SECOND = "The first sentence is here.", "The second one follows."


@pytest.fixture
def wire() -> Wire:
    return Wire()


def test_a_turn_is_chunks_and_then_done(wire: Wire) -> None:
    """Transcripts are joined verbatim, every frame names its context and type, `done` is true in the last alone."""
    for token in ("The fir", "st sent", "ence is", " here. The second", " one", " follows."):
        wire.say("c", token)
    wire.end("c", " ")
    frames = wire.run()
    assert kinds(frames) == ["chunk", "done"]
    assert wire.spoken == [FIRST, SECOND]
    assert audio(frames) == sound(FIRST) + sound(SECOND)
    assert {frame["context_id"] for frame in frames} == {"c"}
    assert [frame["done"] for frame in frames] == [False] * (len(frames) - 1) + [True]
    assert {frame["status_code"] for frame in frames} == {206}
    assert all(frame["step_time"] >= 0 and frame["flush_id"] == 1 for frame in frames[:-1])


def test_one_message_is_a_whole_context_unless_it_says_otherwise(wire: Wire) -> None:
    """`continue` is false where it is left out, and null is left out."""
    for more in ({"continue": None}, {"continue": False}):
        wire.say("c", FIRST, **more)
        assert kinds(wire.run()) == ["chunk", "done"]


def test_contexts_side_by_side_keep_to_themselves(wire: Wire) -> None:
    """Each hears what it would hear alone."""
    wire.say("a", FIRST)
    wire.say("b", SECOND)
    wire.end("b")
    wire.end("a")
    frames = wire.run()
    assert audio(frames, "a") == sound(FIRST)
    assert audio(frames, "b") == sound(SECOND)


def test_words_come_with_their_times_where_they_are_asked_for(wire: Wire) -> None:
    """In their own spelling, in order, in seconds from the context's first sample; the arrays are of one length."""
    wire.say("c", f"{FIRST} {SECOND}", add_timestamps=True)
    wire.end()
    told = words(wire.run())
    assert [word for word, _, _ in told] == f"{FIRST} {SECOND}".split()
    assert [start for _, start, _ in told] == [round(0.08 * number, 4) for number in range(9)]
    assert all(end == round(start + 0.06, 4) for _, start, end in told)
    wire.say("quiet", FIRST)
    wire.end("quiet")
    assert words(wire.run(), "quiet") == []


def test_speed_shortens_the_audio_and_the_times(wire: Wire) -> None:
    """At twice the speed everything is heard in half the time."""
    wire.say("c", FIRST, add_timestamps=True, generation_config={"speed": 2.0})
    wire.end("c")
    frames = wire.run()
    assert len(audio(frames)) == len(sound(FIRST)) // 2
    assert [(start, end) for _, start, end in words(frames)] == [
        (0.0, 0.03),
        (0.04, 0.07),
        (0.08, 0.11),
        (0.12, 0.15),
        (0.16, 0.19),
    ]


@pytest.mark.parametrize(
    ("encoding", "rate", "size"),
    [("pcm_s16le", 8000, 2), ("pcm_f32le", 44100, 4), ("pcm_mulaw", 8000, 1), ("pcm_alaw", 16000, 1)],
)
def test_audio_comes_in_the_format_that_is_asked_for(wire: Wire, encoding: str, rate: int, size: int) -> None:
    """To the last sample, and in whole samples in every frame."""
    wire.say("c", FIRST, output_format={"container": "raw", "encoding": encoding, "sample_rate": rate})
    wire.end("c")
    frames = wire.run()
    assert len(audio(frames)) == size * len(sound(FIRST)) // 2 * rate // 24000
    assert all(len(audio([frame])) % size == 0 for frame in frames)


def test_after_a_cancel_nothing_follows_and_the_id_is_free_at_once(wire: Wire) -> None:
    """Neither what was waiting to be sent, nor an end; the next context of that id has its own audio alone."""
    wire.say("c", f"{FIRST} {SECOND}")
    wire.work(1)
    assert kinds(wire.tell(3)) == ["chunk"]
    wire.cancel()
    wire.say("c", SECOND)
    wire.end()
    frames = wire.run()
    assert kinds(frames) == ["chunk", "done"]
    assert audio(frames) == sound(SECOND)


def test_many_interruptions_in_a_row_take_no_places(wire: Wire) -> None:
    """A hundred turns that are cut off leave nothing behind."""
    for turn in range(100):
        wire.say(f"turn-{turn}", f"{FIRST} {SECOND}")
        wire.work(turn % 3)
        wire.tell(turn % 5)
        wire.cancel(f"turn-{turn}")
    assert wire.run() == []
    wire.say("last", FIRST)
    wire.end("last")
    assert kinds(wire.run()) == ["chunk", "done"]


def test_cancelling_what_is_not_there_is_no_mistake(wire: Wire) -> None:
    """Clients cancel what has just ended."""
    wire.cancel("nobody")
    wire.say("c", FIRST)
    wire.end()
    assert kinds(wire.run()) == ["chunk", "done"]
    wire.cancel()
    assert wire.run() == []


def test_a_flush_is_answered_by_its_number(wire: Wire) -> None:
    """Text is spoken without waiting for more; audio carries the number of the flush that follows it, from 1."""
    wire.say("c", "Stay hungry,")
    assert wire.run() == []
    wire.say("c", "", flush=True)
    first = wire.run()
    assert kinds(first) == ["chunk", "flush_done"]
    assert {frame["flush_id"] for frame in first} == {1}
    assert (first[-1]["flush_done"], first[-1]["done"]) == (True, False)
    wire.say("c", " stay foolish.", flush=True)
    second = wire.run()
    assert kinds(second) == ["chunk", "flush_done"]
    assert {frame["flush_id"] for frame in second} == {2}
    wire.end()
    assert kinds(wire.run()) == ["done"]


def test_without_a_delay_every_message_is_a_flush(wire: Wire) -> None:
    """With `max_buffer_delay_ms` 0 the client does the buffering."""
    wire.say("c", "Stay hungry,", max_buffer_delay_ms=0)
    assert kinds(wire.run()) == ["chunk", "flush_done"]
    wire.say("c", " stay", max_buffer_delay_ms=0)
    wire.end()
    assert kinds(wire.run()) == ["chunk", "flush_done", "done"]
    assert wire.spoken == ["Stay hungry,", "stay"]


def test_a_flush_gives_the_last_sample_of_what_was_said(wire: Wire) -> None:
    """A resampler holds nothing back behind `flush_done`."""
    wire.say("c", FIRST, output_format={**RAW, "sample_rate": 48000}, flush=True)
    assert len(audio(wire.run())) == 2 * len(sound(FIRST))


@pytest.mark.parametrize(("delay_ms", "waits_s"), [(None, 3.0), (1000, 1.0), (5000, 5.0)])
def test_text_is_held_no_longer_than_its_client_wants(wire: Wire, delay_ms: int | None, waits_s: float) -> None:
    """What the cutter would still hold is spoken after the delay, without a `flush_done` that nobody asked for."""
    wire.say("c", "Half a", max_buffer_delay_ms=delay_ms)
    wire.tell()
    wire.pass_time(waits_s - 0.25)
    assert wire.run() == []
    wire.pass_time(0.25)
    assert kinds(wire.run()) == ["chunk"]
    assert wire.spoken == ["Half a"]


def test_text_behind_sentences_that_are_being_spoken_is_not_cut_for_the_delay(wire: Wire) -> None:
    """Nobody waits for it yet, and more may come."""
    wire.say("c", f"{FIRST} {SECOND} And then")
    wire.tell()
    wire.pass_time(4)
    wire.say("c", " comes the third.")
    wire.end()
    wire.run()
    assert wire.spoken == [FIRST, SECOND, "And then comes the third."]


def test_a_context_that_is_heard_gives_its_place_back_and_goes_on_later(wire: Wire) -> None:
    """A turn that waits for a tool: its times and flushes go on, and its end is answered."""
    wire.say("c", FIRST, add_timestamps=True, flush=True)
    frames = wire.run()
    wire.pass_time(1.5)
    assert wire.session.keys == frozenset()
    assert wire.run() == []
    wire.say("c", SECOND, add_timestamps=True)
    wire.say("c", "", flush=True)
    frames += wire.run()
    assert audio(frames) == sound(FIRST) + sound(SECOND)
    assert [start for _, start, _ in words(frames)] == [round(0.08 * number, 4) for number in range(9)]
    assert [frame["flush_id"] for frame in frames if frame["type"] == "flush_done"] == [1, 2]
    wire.pass_time(2)
    wire.say("c", "", flush=True)
    wire.end()
    assert [(f["type"], f.get("flush_id")) for f in wire.run()] == [("flush_done", 3), ("done", None)]


def test_a_context_that_waits_for_its_listener_keeps_its_place(wire: Wire) -> None:
    """Audio is sent faster than it is heard."""
    wire.say("c", FIRST, flush=True)
    wire.run()
    wire.pass_time(1.0)
    assert len(wire.session.keys) == 1


def test_slow_speech_is_listened_to_for_longer(wire: Wire) -> None:
    """0.4 s at 0.6 of the speed are heard after 0.67 s, and a second after that the place is free."""
    wire.say("c", FIRST, flush=True, generation_config={"speed": 0.6})
    wire.run()
    wire.pass_time(1.5)
    assert len(wire.session.keys) == 1
    wire.pass_time(0.25)
    assert wire.session.keys == frozenset()


def test_the_delay_counts_from_what_is_still_held(wire: Wire) -> None:
    """Not from a sentence that the text itself has ended, and that is spoken."""
    wire.say("c", f"{FIRST} So")
    wire.work()
    wire.tell()
    assert wire.spoken == [FIRST]
    wire.pass_time(1.0)
    wire.say("c", " it is. Yes")
    wire.work()
    wire.tell()
    wire.pass_time(2.5)
    assert wire.run() == []
    wire.pass_time(0.75)
    wire.run()
    assert wire.spoken == [FIRST, "So it is.", "Yes"]


def test_nothing_is_done_with_a_context_before_it_is_open(wire: Wire) -> None:
    """Its voice is still being looked for when its delay is over."""
    wire.face.hear(wire.write("c", "Half a", max_buffer_delay_ms=100), wire.clock.now)
    assert wire.face.tick(wire.clock.now + 10) == []


def test_the_rest_of_the_audio_comes_when_a_context_falls_silent(wire: Wire) -> None:
    """Also where nobody flushed: what a resampler holds is sent, and no `done`."""
    wire.say("c", f"{FIRST} ", output_format={**RAW, "sample_rate": 48000})
    frames = wire.run()
    wire.pass_time(6)
    frames += wire.run()
    assert kinds(frames) == ["chunk"]
    assert len(audio(frames)) == 2 * len(sound(FIRST))


def test_silent_contexts_are_remembered_within_a_bound(wire: Wire) -> None:
    """The oldest are forgotten; ids of contexts that are over likewise."""
    for number in range(MAX_SILENT + MAX_OVER + 10):
        wire.say(f"c{number}", "Hi.", flush=True)
        wire.run()
        wire.pass_time(1.75)
    assert len(wire.face._contexts) <= MAX_SILENT + 1
    assert len(wire.face._over) <= MAX_OVER
    assert len(wire.face._stretches) <= 1


def test_a_turn_without_words_ends_quietly(wire: Wire) -> None:
    """LiveKit ends a turn of nothing but tool calls so; the error says `done`, for which LiveKit asks first."""
    for number, transcript in enumerate(("", " ")):
        wire.end(f"c{number}", transcript)
        [frame] = wire.run()
        assert (frame["type"], frame["done"], frame["error_code"]) == ("error", True, "transcript_empty")
        assert (frame["context_id"], frame["status_code"]) == (f"c{number}", 400)


def test_words_without_a_sound_are_an_error_that_livekit_raises(wire: Wire) -> None:
    """Emoji, stars, dots: something was to be said and is not heard."""
    for number, transcript in enumerate(("🎉🎉", "***", "…", "\u200b")):
        wire.say(f"c{number}", transcript)
        wire.end(f"c{number}")
        [frame] = wire.run()
        assert (frame["type"], frame["done"], frame["error_code"]) == ("error", False, "transcript_empty")


def test_a_context_that_has_never_spoken_does_not_end_well(wire: Wire) -> None:
    """Also where its place was given back before its client ended it."""
    wire.say("c", "🎉", max_buffer_delay_ms=0)
    assert kinds(wire.run()) == ["flush_done"]
    wire.pass_time(2)
    assert wire.session.keys == frozenset()
    wire.end()
    [frame] = wire.run()
    assert (frame["type"], frame["done"], frame["error_code"]) == ("error", False, "transcript_empty")


def test_what_has_ended_is_not_ended_twice(wire: Wire) -> None:
    """Pipecat ends its turn again after an error, and after `done`."""
    wire.say("c", FIRST)
    wire.end()
    wire.end()
    assert kinds(wire.run()) == ["chunk", "done"]
    wire.end()
    wire.say("bad", FIRST, voice="nobody")
    wire.end("bad")
    assert kinds(wire.run()) == ["error"]
    wire.end("bad")
    wire.say("gone", FIRST)
    wire.cancel("gone")
    wire.end("gone")
    assert wire.run() == []


def test_a_flush_of_an_unknown_context_opens_none(wire: Wire) -> None:
    """Neither does white space."""
    wire.say("c", "", flush=True)
    wire.say("c", " ")
    assert wire.run() == []
    assert wire.session.keys == frozenset()


def test_a_message_that_ends_a_context_may_name_another_voice(wire: Wire) -> None:
    """The SDK's `no_more_inputs` fills in a voice and a format of its own."""
    wire.say("c", FIRST)
    other = {"container": "raw", "encoding": "pcm_f32le", "sample_rate": 44100}
    wire.say("c", "", voice="6ccbfb76", model_id="sonic-latest", output_format=other, **{"continue": False})
    assert kinds(wire.run()) == ["chunk", "done"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("voice", "nina"),
        ("model_id", "sonic-2"),
        ("output_format", {**RAW, "sample_rate": 8000}),
        ("add_timestamps", True),
        ("max_buffer_delay_ms", 0),
        ("generation_config", {"speed": 1.5}),
        ("speed", "fast"),
        ("use_normalized_timestamps", True),
    ],
)
def test_a_field_that_changes_in_a_context_is_named(wire: Wire, field: str, value: object) -> None:
    """The error ends the context, for so clients take it."""
    wire.say("c", FIRST)
    wire.say("c", SECOND, **{field: value})
    [frame] = wire.run()
    assert f"`{field}" in frame["message"]
    assert (frame["type"], frame["error_code"], frame["done"]) == ("error", "invalid_request", False)
    wire.say("c", SECOND, **{field: value})
    wire.end()
    assert kinds(wire.run())[-1] == "done"


def test_fields_that_are_left_out_stay_as_they_were(wire: Wire) -> None:
    """The first message says how a context sounds; the others may say no more than what."""
    wire.say("c", FIRST, add_timestamps=True, generation_config={"speed": 2.0})
    wire.send(json.dumps({"context_id": "c", "transcript": f" {SECOND}", "continue": False}))
    frames = wire.run()
    assert kinds(frames)[-1] == "done"
    assert len(words(frames)) == 9


def test_more_words_after_the_end_are_an_error(wire: Wire) -> None:
    """The context had said that there are none."""
    wire.say("c", FIRST)
    wire.end()
    wire.say("c", SECOND)
    [frame] = wire.run()
    assert frame["type"] == "error"
    assert "`continue`" in frame["message"]


@pytest.mark.parametrize("voice", ["nina", {"id": "nina"}, {"mode": "id", "id": "nina"}, {"id": str(VOICE.voice)}])
def test_a_voice_is_named_in_any_of_three_ways(wire: Wire, voice: object) -> None:
    """By id or alias, as a text or an object."""
    wire.say("c", FIRST, voice=voice)
    wire.end()
    assert kinds(wire.run()) == ["chunk", "done"]


def test_an_unknown_voice_is_one_error_for_its_context(wire: Wire) -> None:
    """However many words have been sent for it, and the connection goes on."""
    for token in ("One ", "two ", "three."):
        wire.say("c", token, voice="nobody")
    wire.end()
    [frame] = wire.run()
    assert (frame["error_code"], frame["status_code"], frame["context_id"]) == ("voice_not_found", 404, "c")
    wire.say("c", FIRST)
    wire.end()
    assert kinds(wire.run()) == ["chunk", "done"]


def test_the_quota_that_is_used_up_is_told(wire: Wire) -> None:
    """402, as where credits are used up; nobody tries again for that."""
    wire.left = 10
    wire.say("c", FIRST)
    wire.end()
    [frame] = wire.run()
    assert (frame["error_code"], frame["status_code"], frame["done"]) == ("quota_exceeded", 402, False)


def test_a_sentence_that_fails_ends_its_context_and_no_other(wire: Wire) -> None:
    """With the context's id in the error (CQ13)."""
    wire.say("a", FIRST)
    wire.end("a")
    wire.say("b", SECOND)
    wire.end("b")
    wire.fail()
    frames = wire.run()
    assert [(frame["type"], frame["context_id"]) for frame in frames if frame["type"] != "chunk"] == [
        ("error", "a"),
        ("done", "b"),
    ]
    assert audio(frames, "b") == sound(SECOND)


def test_too_many_contexts_are_told_from_a_service_that_is_full(wire: Wire) -> None:
    """429 is for what the client does, with its own word."""
    for number in range(17):
        wire.say(f"c{number}", FIRST)
    [frame] = [frame for frame in wire.run() if frame["type"] == "error"]
    assert (frame["error_code"], frame["status_code"], frame["context_id"]) == ("concurrency_limited", 429, "c16")


@pytest.mark.parametrize(
    ("raw", "names"),
    [
        ("{", "not JSON"),
        (b"\x00\x01", "binary"),
        ("[]", "object"),
        ('{"context_id": "c", "context_id": "d"}', "twice"),
        ("[" * 1000, "JSON"),
        ('{"transcript": "Hello."}', "context_id"),
        ('{"cancel": true}', "context_id"),
        ('{"context_id": "", "transcript": "Hello."}', "context_id"),
        ('{"context_id": 5, "transcript": "Hello."}', "context_id"),
    ],
)
def test_what_names_no_context_is_answered_without_one(wire: Wire, raw: str | bytes, names: str) -> None:
    """The key is there all the same: Pipecat reads it in every frame. What is open goes on."""
    wire.say("c", FIRST)
    wire.send(raw)
    error = next(frame for frame in wire.run() if frame["type"] == "error")
    assert names in error["message"]
    assert error["context_id"] is None
    assert error["request_id"] == wire.face.request
    wire.end()
    assert kinds(wire.run())[-1] == "done"


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"transcript": None}, "transcript"),
        ({"transcript": 5}, "transcript"),
        ({"transcript": "half \ud83d"}, "transcript"),
        ({"transcript": "a" * 10_001}, "request"),
        ({"voice": None}, "voice"),
        ({"voice": {"mode": "embedding", "embedding": [0.1] * 192}}, "consent"),
        ({"voice": {"mode": "mix", "id": "x"}}, "voice.mode"),
        ({"voice": 5}, "voice"),
        ({"voice": "x" * 65}, "voice"),
        ({"output_format": None}, "output_format"),
        ({"output_format": "pcm_24000"}, "output_format"),
        ({"output_format": {**RAW, "container": "wav"}}, "output_format.container"),
        ({"output_format": {"container": "raw", "sample_rate": 24000}}, "output_format.encoding"),
        ({"output_format": {**RAW, "encoding": "pcm_s24le"}}, "output_format.encoding"),
        ({"output_format": {**RAW, "sample_rate": 96000}}, "output_format.sample_rate"),
        ({"output_format": {**RAW, "sample_rate": "24000"}}, "output_format.sample_rate"),
        ({"language": "de"}, "language"),
        ({"locale": "en-GB"}, "locale"),
        ({"language": None, "locale": "fr-FR"}, "locale"),
        ({"continue": "yes"}, "continue"),
        ({"max_buffer_delay_ms": 5001}, "max_buffer_delay_ms"),
        ({"max_buffer_delay_ms": -1}, "max_buffer_delay_ms"),
        ({"generation_config": {"speed": 3}}, "generation_config.speed"),
        ({"generation_config": {"volume": "loud"}}, "generation_config.volume"),
        ({"speed": "fastest"}, "speed"),
        ({"pronunciation_dict_id": "pd_1"}, "pronunciation_dict_id"),
        ({"add_timestamps": 1}, "add_timestamps"),
    ],
)
def test_a_request_that_cannot_be_followed_says_which_field(wire: Wire, changed: dict[str, object], field: str) -> None:
    """With the id of its context, and without what was in it."""
    wire.say(**{"context": "c", "transcript": FIRST, **changed})
    [frame] = wire.run()
    assert (frame["type"], frame["context_id"], frame["status_code"]) == ("error", "c", 400)
    assert field in frame["message"]
    assert set(frame) >= {"title", "message", "error_code", "request_id", "done"}


def test_what_has_no_effect_here_is_taken(wire: Wire) -> None:
    """Volume, emotion, phonemes, any model, English of any country, and fields of other versions."""
    wire.say(
        "c",
        FIRST,
        model_id="sonic-99",
        language="en-GB",
        generation_config={"volume": 1.5, "emotion": "happy"},
        add_phoneme_timestamps=True,
        use_normalized_timestamps=True,
        duration=5,
        voice={"mode": "id", "id": "nina", "__experimental_controls": {"speed": "fast"}},
        normalization="auto",
    )
    wire.end()
    assert kinds(wire.run()) == ["chunk", "done"]


def test_a_stream_of_tokens_that_never_ends_has_an_end(wire: Wire) -> None:
    """A context takes 100,000 characters; the id is free after that."""
    for _ in range(11):
        wire.say("c", "word " * 2000)
    [frame] = [frame for frame in wire.tell() if frame["type"] == "error"]
    assert (frame["error_code"], frame["context_id"], frame["done"]) == ("transcript_too_long", "c", False)


def test_a_voice_that_may_not_be_heard_any_more_ends_its_contexts(wire: Wire) -> None:
    """Deleted, disabled or withdrawn in the middle of a sentence."""
    wire.say("c", FIRST)
    wire.end()
    wire._take(wire.session.silence(VOICE.voice))
    [frame] = [frame for frame in wire.run() if frame["type"] == "error"]
    assert (frame["error_code"], frame["status_code"]) == ("voice_unavailable", 409)


def test_a_relay_that_is_going_to_stop_says_nothing_of_it(wire: Wire) -> None:
    """Cartesia's clients have no word for it; what has begun is finished."""
    wire.say("c", FIRST)
    wire._take(wire.session.drain(5.0))
    wire.end()
    assert kinds(wire.run()) == ["chunk", "done"]


def test_nonsense_has_an_end(wire: Wire) -> None:
    """A client that sends nothing else is let go."""
    for _ in range(40):
        wire.send("nonsense")
    assert wire.session.abusive
