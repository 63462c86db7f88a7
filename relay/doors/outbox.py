"""What is to be told to one client, bounded, with audio that can still be taken back."""

from __future__ import annotations

import asyncio
from collections import deque

from relay.doors.face import Close
from relay.speaking.events import Audio, Event, Flushed, SentenceEnded

CAPACITY = 4096
"""Events; about 16 MB of chunks, minutes of audio ahead of a client that does not read."""
ROOM_FOR_SENTENCES = 256
"""Above this the client is behind anyway, and no further sentence is synthesized for it."""


class OutboxFull(Exception):
    """Raised when the client is so far behind that it must be let go."""


class Outbox:
    """A queue for one reader; `drop` removes a cancelled context's audio before it is sent."""

    def __init__(self) -> None:
        self._items: deque[Event | Close] = deque()
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Event | Close) -> None:
        """Add an event; raises OutboxFull."""
        if len(self._items) >= CAPACITY:
            raise OutboxFull
        self._items.append(item)
        self._filled.set()

    async def get(self) -> Event | Close:
        """Wait for the next event."""
        while not self._items:
            self._filled.clear()
            await self._filled.wait()
        return self._items.popleft()

    def drop(self, context: int) -> int:
        """Forget the audio of a context, and what says that it was sent; returns how many samples are not heard."""
        samples, name = 0, None
        kept: deque[Event | Close] = deque()
        for item in self._items:
            if isinstance(item, Audio) and item.number == context:
                samples, name = samples + item.samples, item.context
            elif not isinstance(item, SentenceEnded | Flushed) or item.context != name:
                kept.append(item)
        if samples:
            self._items = kept
        return samples
