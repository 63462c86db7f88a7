"""One whole text, spoken for an answer over HTTP: a conversation with one context."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, Self

from relay.doors.conversation import Conversation
from relay.doors.face import Close
from relay.errors import RelayError, SentenceFailed
from relay.speaking.commands import End, Open, Text
from relay.speaking.events import Audio, Cancelled, Done, Event, Failed

CONTEXT = "speech"
_PIECE = 10_000


class Utterance:
    """What is said; `close` it in every case, and it costs nothing any more."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._stack = AsyncExitStack()
        self._first: deque[Event] = deque()

    @property
    def send_timeout_s(self) -> float:
        """How long a client may leave unread what it is sent."""
        return self._conversation.limits.send_timeout_s

    async def begin(self, voice: str, text: str, *, mel: bool = False, speed: float = 1.0) -> Self:
        """Returns with the first audio on its way; raises RelayError when it does not come to that."""
        await self._stack.enter_async_context(self._conversation)
        try:
            await self._conversation.follow(Open(CONTEXT, voice, mel, speed=speed))
            for start in range(0, len(text), _PIECE):
                if self._conversation.session.holds(CONTEXT):
                    await self._conversation.follow(Text(CONTEXT, text[start : start + _PIECE]))
            if self._conversation.session.holds(CONTEXT):
                await self._conversation.follow(End(CONTEXT))
            while not self._first or not isinstance(self._first[-1], Audio):
                self._first.append(await self._next())
        except BaseException:
            await self.close()
            raise
        return self

    async def events(self) -> AsyncIterator[Event]:
        """Everything from the beginning to `Done`; raises RelayError when it cannot be spoken to its end."""
        while self._first:
            yield self._first.popleft()
        while True:
            event = await self._next()
            yield event
            if isinstance(event, Done):
                return

    async def close(self) -> None:
        """Stop whatever is still being done for it; may be called again."""
        await self._stack.aclose()

    async def _next(self) -> Event:
        getting = asyncio.create_task(self._conversation.outbox.get())
        try:
            waited: set[asyncio.Future[Any]] = {getting, self._conversation.ending}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if not getting.done():
                raise _interrupted(self._conversation.ending.result().reason)
            event = getting.result()
        finally:
            getting.cancel()
        match event:
            case Failed(error=error):
                raise error
            case Close(reason=reason):
                raise _interrupted(reason)
            case Cancelled():
                raise _interrupted("the context was cancelled")
        return event


def _interrupted(reason: str) -> RelayError:
    return SentenceFailed("interrupted", reason or "the speech was interrupted", retryable=True)
