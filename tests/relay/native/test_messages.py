"""relay.native.messages and relay.native.frames."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.errors import InvalidMessage, RelayError, TextTooLong
from relay.native.frames import HEADER, LAST_OF_SENTENCE, MOST, encode_frame
from relay.native.messages import MAX_TEXT, read_message
from relay.speaking.commands import Open, Text
from tests.relay.conftest import make_audio


def test_a_message_is_read_with_its_fields() -> None:
    """`open` and `text` carry what the protocol says; what else is there is ignored."""
    opened = read_message('{"type": "open", "context": "a-1", "voice": "v", "future": true}')
    assert isinstance(opened, Open)
    assert (opened.context, opened.voice) == ("a-1", "v")
    text = read_message(json.dumps({"type": "text", "context": "a", "text": "naïve 😄"}))
    assert isinstance(text, Text)
    assert text.text == "naïve 😄"


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ("", None),
        ("not json", None),
        ("[1, 2]", None),
        ("[" * 100_000, None),
        ("{}", "type"),
        ('{"type": "sing", "context": "c"}', "type"),
        ('{"type": 7, "context": "c"}', "type"),
        ('{"type": "text", "text": "x"}', "context"),
        ('{"type": "text", "context": "a b", "text": "x"}', "context"),
        ('{"type": "text", "context": "", "text": "x"}', "context"),
        ('{"type": "text", "context": 3, "text": "x"}', "context"),
        ('{"type": "text", "context": "c"}', "text"),
        ('{"type": "text", "context": "c", "text": 5}', "text"),
        ('{"type": "text", "context": "c", "text": null}', "text"),
        ('{"type": "text", "context": "c", "text": "half \\ud83d of one"}', "text"),
        ('{"type": "open", "context": "c"}', "voice"),
        ('{"type": "open", "context": "c", "voice": "\\ud800"}', "voice"),
        ('{"type": "open", "context": "c", "voice": ""}', "voice"),
    ],
)
def test_a_message_that_cannot_be_read_names_the_field(raw: str, field: str | None) -> None:
    """Every kind of nonsense is InvalidMessage with the field at fault."""
    with pytest.raises(InvalidMessage) as caught:
        read_message(raw)
    assert caught.value.field == field


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(raw: str) -> None:
    """No string brings down the reader."""
    try:
        read_message(raw)
    except RelayError:
        return


def test_a_hundred_thousand_characters_are_too_long_for_a_message() -> None:
    """The limit and the way out are in the error."""
    with pytest.raises(TextTooLong, match="10,000") as caught:
        read_message(json.dumps({"type": "text", "context": "c", "text": "a" * (MAX_TEXT + 1)}))
    assert caught.value.field == "text"


def test_a_frame_is_its_header_and_its_samples() -> None:
    """Version, flags, time to audio, context, sentence and chunk in sixteen bytes, then the PCM as it is."""
    frame = encode_frame(make_audio(b"\1\2\3\4", last=True, ttfa_ms=21))
    assert HEADER.unpack(frame[:16]) == (1, LAST_OF_SENTENCE, 21, 7, 3, 12)
    assert frame[16:] == b"\1\2\3\4"
    assert encode_frame(make_audio(b"", last=False))[1] == 0


def test_a_time_beyond_the_header_is_the_most_that_it_holds() -> None:
    """A minute and more is a minute."""
    assert HEADER.unpack(encode_frame(make_audio(b"", ttfa_ms=70_000))[:16])[2] == MOST
