"""relay.doors.outbox."""

from __future__ import annotations

import asyncio

import pytest

from relay.doors.outbox import CAPACITY, Outbox, OutboxFull
from relay.speaking.events import Cancelled, Event, Flushed, SentenceEnded
from tests.relay.conftest import make_audio


async def test_the_outbox_gives_back_in_order_and_forgets_what_is_dropped() -> None:
    """Dropping a context takes its audio, says how many samples that were, and leaves everything else."""
    outbox = Outbox()
    items: list[Event] = [
        make_audio(bytes(3840), number=1),
        make_audio(bytes(3840), number=2),
        Cancelled("c"),
        make_audio(bytes(960), number=1),
        make_audio(bytes(960), number=2),
    ]
    for item in items:
        outbox.put(item)
    assert outbox.drop(1) == 2400
    assert [await outbox.get() for _ in range(len(outbox))] == [items[1], items[2], items[4]]


async def test_what_says_that_dropped_audio_was_sent_goes_with_it() -> None:
    """Not what was told before it, nor of another context, nor of one that had the same id before."""
    outbox = Outbox()
    ended = SentenceEnded("c", 3, 13, 1920, 1.0, None, 1.0)
    before: list[Event] = [make_audio(bytes(2), number=1), ended, Flushed("c", 0)]
    after: list[Event] = [make_audio(bytes(2), number=2), ended, Flushed("c", 0)]
    other: list[Event] = [SentenceEnded("d", 0, 1, 1, 1.0, None, 1.0), Cancelled("c")]
    for item in (*before, *after, *other):
        outbox.put(item)
    assert outbox.drop(2) == 1
    assert [await outbox.get() for _ in range(len(outbox))] == [*before, *other]


async def test_the_outbox_wakes_its_reader() -> None:
    """A reader that waits gets what is put later."""
    outbox = Outbox()
    waiting = asyncio.create_task(outbox.get())
    await asyncio.sleep(0)
    outbox.put(Cancelled("c"))
    assert await waiting == Cancelled("c")


def test_the_outbox_is_bounded() -> None:
    """A client that never reads cannot fill the memory."""
    outbox = Outbox()
    for _ in range(CAPACITY):
        outbox.put(make_audio(b""))
    with pytest.raises(OutboxFull):
        outbox.put(make_audio(b""))
