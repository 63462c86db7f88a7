"""Messages and frames of the protocol, as the client reads them."""

from __future__ import annotations

import contextlib
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timbrelay.events import (
    Cancelled,
    Chunk,
    Done,
    Failed,
    Flushed,
    Hello,
    Opened,
    ProtocolFault,
    Sentence,
    SentenceEnd,
    Word,
    Words,
    parse_error,
    parse_frame,
    parse_message,
)

MESSAGES = {
    '{"type": "hello", "protocol": 1, "sample_rate": 24000, "encoding": "pcm_s16le", "channels": 1, '
    '"chunk_samples": 1920}': Hello(24000, 1920),
    '{"type": "opened", "context": "c", "number": 7, "voice": "v", "version": 2}': Opened("c", 7, "v", 2),
    '{"type": "opened", "context": "c", "number": 7, "voice": "v", "version": 2, "resume": "t", '
    '"characters": 9}': Opened("c", 7, "v", 2, "t", 9),
    '{"type": "flushed", "context": "c", "flush": 3}': Flushed("c", 3),
    '{"type": "sentence", "context": "c", "sentence": 0, "start": 1, "end": 9}': Sentence("c", 0, 1, 9),
    '{"type": "sentence_end", "context": "c", "sentence": 0, "chunks": 3, "samples": 5000, '
    '"first_audio_ms": 80, "overhead_ms": null, "total_ms": 300}': SentenceEnd("c", 0, 3, 5000, 80, None, 300),
    '{"type": "done", "context": "c", "sentences": 1, "samples": 5000}': Done("c", 1, 5000),
    '{"type": "cancelled", "context": "c", "new_field": 1}': Cancelled("c"),
}


@pytest.mark.parametrize("text", MESSAGES)
def test_each_message_becomes_its_event(text: str) -> None:
    """The messages of docs/protocol.md are read; fields that are not known yet are passed over."""
    assert parse_message(text) == MESSAGES[text]


def test_an_error_carries_its_code() -> None:
    """An error keeps the wire code, the field at fault, whether to try again and when."""
    event = parse_message(
        '{"type": "error", "code": "overloaded", "message": "later", "field": null, "context": "c", "retryable": true, '
        '"retry_after_ms": 3000, "unspoken": {"start": 3, "end": 9}}'
    )
    assert isinstance(event, Failed)
    assert (event.context, event.error.code, event.error.field, event.error.retryable) == (
        "c",
        "overloaded",
        None,
        True,
    )
    assert event.unspoken == (3, 9)
    assert (event.error.retry_after_ms, str(event.error)) == (3000, "later (overloaded)")
    assert parse_error({"code": "internal"}).retry_after_ms is None


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", '{"type": "done", "context": "c"}'])
def test_what_is_not_understood_is_a_fault(text: str) -> None:
    """Anything else is a fault of the protocol, never a crash."""
    with pytest.raises(ProtocolFault):
        parse_message(text)


@given(st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.dictionaries(st.text(), inner)))
def test_no_json_is_a_crash(value: object) -> None:
    """No JSON whatsoever raises anything but ProtocolFault."""
    with contextlib.suppress(ProtocolFault):
        assert parse_message(json.dumps(value)) is None


def test_a_kind_of_message_that_is_not_known_yet_is_passed_over() -> None:
    """A relay may be newer than its client."""
    assert parse_message('{"type": "new", "context": "c"}') is None


def test_words_come_with_their_places_and_times() -> None:
    """As they were written, in the order of the text."""
    word = '{"text": "$5", "start": 3, "end": 5, "start_ms": 120, "end_ms": 640}'
    text = f'{{"type": "words", "context": "c", "sentence": 2, "words": [{word}]}}'
    assert parse_message(text) == Words("c", 2, (Word("$5", 3, 5, 120, 640),))


def test_a_frame_becomes_a_chunk() -> None:
    """A binary frame's header is big-endian; its samples follow as they are."""
    frame = struct.pack(">BBHIII", 1, 1, 21, 2**32 - 1, 3, 70_000) + b"\x01\x02\x03\x04"
    assert parse_frame(frame) == Chunk(2**32 - 1, 3, 70_000, True, b"\x01\x02\x03\x04", 21)
    assert parse_frame(frame).samples == 2


@pytest.mark.parametrize("frame", [b"", b"\x01" * 15, b"\x02" + b"\x00" * 15, b"\x01" + b"\x00" * 16])
def test_a_frame_that_is_none_is_a_fault(frame: bytes) -> None:
    """A short header, another version or half a sample is a fault of the protocol."""
    with pytest.raises(ProtocolFault):
        parse_frame(frame)
