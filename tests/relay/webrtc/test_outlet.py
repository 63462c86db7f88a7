"""relay.webrtc.outlet, with a channel that the test fills and empties."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from aiortc import RTCDataChannel

from relay.webrtc.outlet import MAX_BUFFERED, MAX_KEPT, Outlet


class Channel:
    """What an outlet uses of a data channel."""

    def __init__(self) -> None:
        self.readyState = "open"
        self.bufferedAmount = 0
        self.sent: list[str | bytes] = []

    def send(self, message: str | bytes) -> None:
        self.sent.append(message)


def attach(outlet: Outlet) -> Channel:
    channel = Channel()
    outlet.attach(cast(RTCDataChannel, channel))
    return channel


def test_messages_wait_for_the_channel() -> None:
    """They come in their order, the latest of them where there are too many."""
    outlet = Outlet()
    for number in range(MAX_KEPT + 10):
        outlet.send(str(number))
    channel = attach(outlet)
    outlet.send("last")
    assert channel.sent == [*map(str, range(10, MAX_KEPT + 10)), "last"]


def test_nothing_is_kept_for_a_client_without_a_channel() -> None:
    """Once it is clear that it has none, or that the one it had is closed."""
    outlet = Outlet()
    outlet.send("early")
    outlet.give_up()
    outlet.send("late")
    channel = attach(outlet)
    channel.readyState = "closed"
    outlet.send("gone")
    assert channel.sent == []
    assert attach(outlet).sent == []
    assert outlet.open


async def test_who_does_not_read_is_waited_for_and_given_up() -> None:
    """With a megabyte on its way there is a wait, which ends as soon as it is less, or at its limit."""
    outlet = Outlet()
    channel = attach(outlet)
    await outlet.wait(0.01)
    channel.bufferedAmount = MAX_BUFFERED + 1
    with pytest.raises(TimeoutError):
        await outlet.wait(0.05)
    waiting: asyncio.Task[Any] = asyncio.create_task(outlet.wait(10))
    await asyncio.sleep(0)
    channel.bufferedAmount = 0
    await waiting


async def test_last_words_are_waited_for_within_bounds() -> None:
    """A client that does not take them keeps nobody."""
    outlet = Outlet()
    channel = attach(outlet)
    channel.bufferedAmount = 1
    await outlet.flush(0.05)
    channel.bufferedAmount = 0
    await outlet.flush(10)
