"""relay.dialects.cartesia.messages and what it reads: whatever comes, an answer and nothing else."""

from __future__ import annotations

import json
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from relay.dialects.cartesia.messages import Cancellation, Generation, find_context, read_message
from relay.dialects.cartesia.styles import MAX_TRANSCRIPT, Wanted, read_style
from relay.errors import InvalidMessage, RelayError, TextTooLong
from tests.relay.dialects.cartesia.wire import RAW, Wire

FIELDS = (*Wanted.model_fields, "context_id", "continue", "flush", "cancel")
WHOLE = {"context_id": "c", "transcript": "Hello.", "voice": "nina", "output_format": RAW}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from((*FIELDS, "id", "mode")), inner),
    max_leaves=8,
)
QUICK = settings(max_examples=300, deadline=None, derandomize=True)


@QUICK
@given(st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4))
def test_a_message_is_read_or_refused(changed: dict[str, object]) -> None:
    """With whatever in any of its fields; a refusal names the field and never what it holds."""
    try:
        message = read_message(json.dumps({**WHOLE, **changed}))
        if isinstance(message, Generation):
            read_style(message.wanted, raw_only=True)
            assert len(message.text) <= MAX_TRANSCRIPT
            message.text.encode()
    except (InvalidMessage, TextTooLong) as error:
        assert len(error.message) < 600
        error.message.encode()


@QUICK
@given(st.text() | st.binary())
def test_what_is_no_message_is_refused(raw: str | bytes) -> None:
    """Text, bytes, anything; nor does looking for its context fail."""
    assert find_context(raw) is None
    with suppress(RelayError):
        raise AssertionError(read_message(raw))


@QUICK
@given(st.lists(st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=2), max_size=12))
def test_a_conversation_of_nonsense_is_answered_to_its_end(messages: list[dict[str, object]]) -> None:
    """The face goes on, and holds nothing of what it refused."""
    wire = Wire()
    for changed in messages:
        wire.send(json.dumps({**WHOLE, "continue": True, **changed}))
        wire.tell()
    for context in list(wire.face._contexts):
        wire.cancel(context)
    wire.run()
    assert not wire.face._contexts
    assert not wire.face._stretches
    assert not wire.face._answers
    assert not wire.session.keys


def test_a_message_is_a_generation_or_a_cancellation() -> None:
    """`cancel` counts where it is true; `continue` is false where it is left out."""
    read = read_message(json.dumps({**WHOLE, "cancel": False}))
    assert isinstance(read, Generation)
    assert (read.context, read.text, read.more, read.flush, read.blank) == ("c", "Hello.", False, False, False)
    assert read_message('{"context_id": "c", "cancel": true, "transcript": 5}') == Cancellation("c")
