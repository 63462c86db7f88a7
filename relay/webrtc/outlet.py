"""What goes out over a peer's data channel: kept until the channel opens, bounded, given up when nobody reads."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

from aiortc import RTCDataChannel

MAX_BUFFERED = 1024 * 1024
"""Bytes on their way to a client before more is held back."""
MAX_KEPT = 256
"""Messages for a channel that is not open yet."""
_POLL_S = 0.02


class Outlet:
    """The first channel that the client opens, for as long as it is open; then the next."""

    def __init__(self) -> None:
        self._channel: RTCDataChannel | None = None
        self._kept: deque[str | bytes] | None = deque(maxlen=MAX_KEPT)

    @property
    def open(self) -> bool:
        """Whether what is sent goes out at once."""
        return self._channel is not None and self._channel.readyState == "open"

    def attach(self, channel: RTCDataChannel) -> None:
        """Send over this channel, first what was kept for it."""
        if self.open:
            return
        self._channel = channel
        kept, self._kept = self._kept or (), None
        for message in kept:
            self.send(message)

    def send(self, message: str | bytes) -> None:
        """Send it or keep it; where there is no channel any more, or will be none, it is dropped."""
        if self._channel is not None and self.open:
            self._channel.send(message)
        elif self._kept is not None:
            self._kept.append(message)

    def give_up(self) -> None:
        """The client has no channel: keep nothing for it."""
        self._kept = None

    async def wait(self, limit_s: float) -> None:
        """Until there is room for more; raises TimeoutError."""
        if not self._full():
            return
        async with asyncio.timeout(limit_s):
            # aiortc announces only the way down through one threshold, and not that a channel has closed.
            while self._full():  # noqa: ASYNC110
                await asyncio.sleep(_POLL_S)

    async def flush(self, limit_s: float) -> None:
        """Until the client has what was sent, but no longer than this."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while self._channel is not None and self.open and self._channel.bufferedAmount:  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_S)

    def _full(self) -> bool:
        return self._channel is not None and self.open and self._channel.bufferedAmount > MAX_BUFFERED
