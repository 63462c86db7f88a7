"""relay.native.messages, relay.native.frames and relay.native.outbox."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.errors import InvalidMessage, RelayError, TextTooLong
from relay.native.frames import HEADER, LAST_OF_SENTENCE, encode_frame
from relay.native.messages import MAX_TEXT, Open, Text, read_message
from relay.native.outbox import CAPACITY, Outbox, OutboxFull
from relay.speaking.outputs import Play, Say


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
    """Version, flags, context, sentence and chunk in sixteen bytes, then the PCM as it is."""
    frame = encode_frame(7, 3, 12, b"\1\2\3\4", last=True)
    assert HEADER.unpack(frame[:16]) == (1, LAST_OF_SENTENCE, 0, 7, 3, 12)
    assert frame[16:] == b"\1\2\3\4"
    assert encode_frame(7, 3, 12, b"", last=False)[1] == 0


async def test_the_outbox_gives_back_in_order_and_forgets_what_is_dropped() -> None:
    """Dropping a context takes its frames, says how many samples that were, and leaves everything else."""
    outbox = Outbox()
    items: list[Say | Play] = [
        Play(1, b"a", 0.0, 1920),
        Play(2, b"b", 0.0, 1920),
        Say({"n": 1}),
        Play(1, b"c", 0.0, 480),
        Play(2, b"d", 0.0, 480),
    ]
    for item in items:
        outbox.put(item)
    assert outbox.drop(1) == 2400
    assert [await outbox.get() for _ in range(len(outbox))] == [items[1], items[2], items[4]]


async def test_the_outbox_wakes_its_reader() -> None:
    """A reader that waits gets what is put later."""
    outbox = Outbox()
    waiting = asyncio.create_task(outbox.get())
    await asyncio.sleep(0)
    outbox.put(Say({"n": 1}))
    assert await waiting == Say({"n": 1})


def test_the_outbox_is_bounded() -> None:
    """A client that never reads cannot fill the memory."""
    outbox = Outbox()
    for _ in range(CAPACITY):
        outbox.put(Play(1, b"", 0.0, 0))
    with pytest.raises(OutboxFull):
        outbox.put(Play(1, b"", 0.0, 0))
