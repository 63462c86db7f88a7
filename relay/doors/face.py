"""A protocol's side of one WebSocket, sans-I/O: messages in, commands out; events in, messages out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from relay.audio.formats import Format
from relay.speaking.commands import Command, Open, Resume
from relay.speaking.events import Event


@dataclass(frozen=True, slots=True)
class Close:
    """End the connection, once what comes before it is sent (RFC 6455, section 7.4)."""

    code: int
    reason: str = ""


Frame = str | bytes
Sent = Frame | Close


class Face(Protocol):
    """One a connection; it may keep what it has heard and told."""

    def greet(self) -> Sequence[Frame]:
        """What the client is told first."""

    def hear(self, raw: Frame, now: float) -> Sequence[Command]:
        """What a message asks for; a RelayError that it raises is told to the client, and ends nothing."""

    def sound_of(self, command: Open | Resume) -> tuple[Format, float] | None:
        """The format and the speed of a context that this begins, so that its codec can be loaded first."""

    def tell(self, event: Event) -> Sequence[Sent]:
        """An event in the protocol's words; called when it is about to be sent."""

    def tick(self, now: float) -> Sequence[Command | Close]:
        """Let time pass; called every quarter of a second."""
