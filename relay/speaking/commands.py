"""What a client wants, whatever protocol it says it in."""

from __future__ import annotations

from dataclasses import dataclass

from relay.errors import RelayError


@dataclass(frozen=True, slots=True)
class Open:
    """Begin a context in a voice."""

    context: str
    voice: str
    """Its id or an alias."""
    mel: bool = False
    """Whether the mel frames are wanted beside the audio."""
    manner: object = None
    """How its door wants to tell of it; comes back with `Opened`."""
    speed: float = 1.0
    """How many times faster than it is spoken its door lets it be heard."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on with a context whose connection was lost, after the last chunk that its client has."""

    context: str
    token: str
    """As `Opened.resume` gave it."""
    sentence: int
    chunk: int
    """-1 when the client has nothing of the sentence."""
    manner: object = None
    """As in `Open`."""
    speed: float = 1.0
    """As in `Open`."""


@dataclass(frozen=True, slots=True)
class Text:
    """The next piece of a context's text."""

    context: str
    text: str


@dataclass(frozen=True, slots=True)
class Flush:
    """Speak what is there."""

    context: str


@dataclass(frozen=True, slots=True)
class End:
    """No more text."""

    context: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop now."""

    context: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """Tell the client why something that it said is not followed."""

    context: str | None
    error: RelayError


@dataclass(frozen=True, slots=True)
class Leave:
    """Hang up as soon as no context is open any more."""

    code: int = 1000
    reason: str = ""


Command = Open | Resume | Text | Flush | End | Cancel | Refuse | Leave
