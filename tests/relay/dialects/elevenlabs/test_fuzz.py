"""Whatever is sent, a face answers or passes over; it never breaks, and never keeps more than it may."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.dialects.elevenlabs.messages import read_key, read_object
from relay.errors import RelayError
from tests.relay.dialects.elevenlabs.desk import Desk, open_multi, open_stream

_ANY: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_TEXTS = st.sampled_from(
    ["", " ", "\n", "Good morning. ", "<break time='1s'/>", "<b", "\ud83d", "\0", "x" * 10_001, "😀"]
)
_MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "text": _TEXTS | _ANY,
        "context_id": st.sampled_from(["a", "b", "\ud800", ""]) | _ANY,
        "contextId": _ANY,
        "flush": st.booleans() | _ANY,
        "close_context": st.booleans() | _ANY,
        "close_socket": st.just(False) | _ANY,
        "voice_settings": st.fixed_dictionaries({}, optional={"speed": st.sampled_from([0.5, 1, "x", 9]) | _ANY})
        | _ANY,
        "generation_config": _ANY,
        "xi_api_key": _ANY,
    },
)
_RAW = _MESSAGES.map(json.dumps) | _ANY.map(json.dumps) | st.text(max_size=30) | st.binary(max_size=30)


@pytest.mark.parametrize("open_desk", [open_multi, open_stream])
@settings(max_examples=150, deadline=None)
@given(messages=st.lists(_RAW, max_size=12), ssml=st.booleans(), auto_mode=st.booleans())
def test_any_message_is_answered_or_passed_over(
    open_desk: Any, messages: list[str | bytes], ssml: bool, auto_mode: bool
) -> None:
    """In any order, with time and speech in between; what is answered is JSON, and says so when it is an error."""
    desk: Desk = open_desk(enable_ssml_parsing=str(ssml).lower(), auto_mode=str(auto_mode).lower())
    for raw in messages:
        desk.say_raw(raw)
        desk.wait(0.25)
        if len(desk.jobs) > 3:
            desk.speak_sentence()
    desk.wait(1000)
    desk.speak()
    desk.wait(0.25)
    desk.speak()
    desk.wait(1000)
    for frame in desk.frames:
        assert ("error" in frame) == ("message" in frame)
    assert not desk.harness.session.keys or desk.closed is not None
    assert desk.closed is not None


@given(raw=_RAW)
def test_a_first_message_has_a_key_or_a_reason(raw: str | bytes) -> None:
    """Never something that could not be looked up."""
    try:
        read_key(read_object(raw)).encode("ascii")
    except RelayError as error:
        assert error.message
