"""What a door is to the benchmark: a warm connection that is given a text and says when it first sounded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from timbrelay.errors import OpsError

DEADLINE_S = 20.0


class DoorFault(OpsError):
    """Raised when a door answers with something other than speech."""

    def __init__(self, door: str, answer: str) -> None:
        super().__init__(f"{door} gave no speech: {answer[:200]}")


@dataclass(frozen=True, slots=True)
class Site:
    """Where the relay is, and who speaks there."""

    url: str
    """As `http://host:port`."""
    key: str
    voice: str

    @property
    def socket_url(self) -> str:
        """The same for WebSockets."""
        return "ws" + self.url.removeprefix("http")


Speak = Callable[[str], Awaitable[float]]
"""Has a text spoken to its end; seconds from sending it to the first audio."""


@dataclass(frozen=True, slots=True)
class Door:
    """A way to the same speech."""

    name: str
    open: Callable[[Site], AbstractAsyncContextManager[Speak]]
