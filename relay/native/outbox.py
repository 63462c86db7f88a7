"""What is to be sent to one client, bounded, with frames that can still be taken back."""

from __future__ import annotations

import asyncio
from collections import deque

from relay.speaking.outputs import Play, Say

CAPACITY = 4096
"""Messages; about 16 MB of chunks, minutes of audio ahead of a client that does not read."""
ROOM_FOR_SENTENCES = 256
"""Above this the client is behind anyway, and no further sentence is synthesized for it."""


class OutboxFull(Exception):
    """Raised when the client is so far behind that it must be let go."""


class Outbox:
    """A queue for one reader; `drop` removes a cancelled context's frames before they are sent."""

    def __init__(self) -> None:
        self._items: deque[Say | Play] = deque()
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Say | Play) -> None:
        """Add a message; raises OutboxFull."""
        if len(self._items) >= CAPACITY:
            raise OutboxFull
        self._items.append(item)
        self._filled.set()

    async def get(self) -> Say | Play:
        """Wait for the next message."""
        while not self._items:
            self._filled.clear()
            await self._filled.wait()
        return self._items.popleft()

    def drop(self, context: int) -> int:
        """Forget the frames of a context; returns how many samples will not be heard."""
        dropped = [item for item in self._items if isinstance(item, Play) and item.context == context]
        if dropped:
            self._items = deque(
                item for item in self._items if not (isinstance(item, Play) and item.context == context)
            )
        return sum(item.samples for item in dropped)
