"""relay.doors.outbox."""

from __future__ import annotations

import asyncio

import pytest

from relay.doors.outbox import CAPACITY, Outbox, OutboxFull
from relay.speaking.events import Cancelled, Event
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
