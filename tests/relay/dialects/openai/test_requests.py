"""What OpenAI's clients send for speech, read or refused with the field at fault."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.audio.formats import Codec
from relay.dialects.openai.errors import answer_error, describe, find_status
from relay.dialects.openai.requests import FORMATS, MAX_BODY_BYTES, MAX_INPUT, SpeechRequest, parse_speech
from relay.errors import RelayError

ASKED = {"model": "tts-1", "input": "Hello.", "voice": "alloy"}


def _parse(**changed: Any) -> Any:
    return parse_speech(json.dumps({**ASKED, **changed}).encode())


def _refusal(raw: bytes) -> RelayError:
    with pytest.raises(RelayError) as refusal:
        parse_speech(raw)
    return refusal.value


def test_what_is_left_out_has_openais_defaults() -> None:
    """mp3 as plain audio at the speed of the voice; null is as good as nothing."""
    nothing = dict.fromkeys(("response_format", "stream_format", "speed", "instructions", "model"))
    for asked in (_parse(), _parse(**nothing)):
        assert (asked.format.codec, asked.stream_format, asked.speed) == (Codec.MP3, None, None)


def test_a_voice_is_a_name_or_an_object_with_an_id() -> None:
    """Both spellings of the SDK; more in the object has no effect."""
    assert _parse(voice="alloy").voice_name == _parse(voice={"id": "alloy", "more": 1}).voice_name == "alloy"


def test_what_openai_does_not_know_has_no_effect() -> None:
    """Unknown fields, any model, instructions."""
    asked = _parse(model="anything", instructions="whisper", temperature=2, nested={"a": [1]})
    assert (asked.model, asked.input) == ("anything", "Hello.")


def test_every_format_has_24_khz_but_opus() -> None:
    """Clients take 24 kHz for granted where nothing else is said."""
    assert set(FORMATS) == {"mp3", "opus", "aac", "flac", "wav", "pcm"}
    assert {name: found.sample_rate for name, found in FORMATS.items() if found.sample_rate != 24_000} == {
        "opus": 48_000
    }


@pytest.mark.parametrize("speed", [0.25, 1, 4.0])
def test_a_speed_within_the_bounds_is_taken(speed: float) -> None:
    """The bounds themselves as well, and whole numbers."""
    assert _parse(speed=speed).speed == speed


@pytest.mark.parametrize(
    ("changed", "param", "code"),
    [
        ({"response_format": "mpeg"}, "response_format", "invalid_value"),
        ({"response_format": 3}, "response_format", "invalid_value"),
        ({"response_format": ["mp3"]}, "response_format", "invalid_value"),
        ({"stream_format": "websocket"}, "stream_format", "invalid_value"),
        ({"speed": 0.24}, "speed", "number_below_min_value"),
        ({"speed": 4.01}, "speed", "number_above_max_value"),
        ({"speed": "1.0"}, "speed", "invalid_type"),
        ({"speed": True}, "speed", "invalid_type"),
        ({"input": ""}, "input", "string_below_min_length"),
        ({"input": "x" * (MAX_INPUT + 1)}, "input", "string_above_max_length"),
        ({"input": ["Hello."]}, "input", "invalid_type"),
        ({"input": None}, "input", "invalid_type"),
        ({"input": "half of a pair: \ud83d"}, "input", "invalid_value"),
        ({"voice": 1}, "voice", "invalid_type"),
        ({"voice": {"name": "alloy"}}, "voice", "invalid_type"),
        ({"voice": None}, "voice", "invalid_type"),
        ({"model": 5}, "model", "invalid_type"),
        ({"instructions": {}}, "instructions", "invalid_type"),
    ],
)
def test_what_does_not_fit_is_named(changed: dict[str, Any], param: str, code: str) -> None:
    """400, with the field, and never what it holds (FM7)."""
    refusal = _refusal(json.dumps({**ASKED, **changed}).encode())
    body = describe(refusal)
    assert (find_status(refusal), body.type, body.param, body.code) == (400, "invalid_request_error", param, code)
    assert param in body.message
    assert "alloy" not in body.message


@pytest.mark.parametrize("missing", ["input", "voice"])
def test_what_is_missing_is_named(missing: str) -> None:
    """Without a text or a voice there is nothing to do."""
    body = describe(_refusal(json.dumps({name: ASKED[name] for name in ASKED if name != missing}).encode()))
    assert (body.param, body.code) == (missing, "missing_required_parameter")


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"[]", b"3", b'"text"', b"\xff\xfe", b'{"input": NaN}', b'{"input": "a", "input": "b"}', b"[" * 50_000],
)
def test_what_is_no_object_of_json_is_a_bad_request(raw: bytes) -> None:
    """Whatever came instead."""
    assert find_status(_refusal(raw)) == 400


def test_the_longest_text_fits_however_it_is_spelt() -> None:
    """4,096 characters of twelve bytes each, and as many instructions, are within the bound of a body."""
    text = "\U0001f600" * MAX_INPUT
    raw = json.dumps({**ASKED, "input": text, "instructions": text}).encode()
    assert len(raw) < MAX_BODY_BYTES
    assert parse_speech(raw).input == text


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
_FIELDS = st.sampled_from([*SpeechRequest.model_fields, "more"])


@given(st.dictionaries(_FIELDS, _VALUES) | _VALUES, st.booleans())
def test_whatever_is_sent_is_a_request_or_a_bad_one(value: Any, complete: bool) -> None:
    """Nothing but what a client is told comes of it, and whatever it is told can be written."""
    if complete and isinstance(value, dict):
        value = {**ASKED, **value}
    try:
        parse_speech(json.dumps(value).encode())
    except RelayError as error:
        assert answer_error(error).status_code == 400


@given(st.binary(max_size=64))
def test_whatever_bytes_are_sent_are_a_bad_request(raw: bytes) -> None:
    """They are no request, unless by a miracle."""
    assert find_status(_refusal(raw)) == 400


def test_a_number_beyond_every_float_is_out_of_bounds() -> None:
    """However it is written."""
    for number in ("1e400", "1" + "0" * 400, "1" + "0" * 5000):
        raw = f'{{"input": "a", "voice": "b", "speed": {number}}}'.encode()
        assert find_status(_refusal(raw)) == 400
