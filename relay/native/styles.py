"""How a client wants to be told a context: in which audio format, and how fast."""

from __future__ import annotations

from dataclasses import dataclass

from relay.audio.encoding import SOURCE_RATE
from relay.audio.formats import Codec, Format, parse_format
from relay.errors import InvalidMessage

DEFAULT_FORMAT = "pcm_24000"


@dataclass(frozen=True, slots=True)
class Style:
    """One a context; `speed` is how many times faster than it was spoken, in the same pitch."""

    format: Format
    speed: float = 1.0

    @property
    def plain(self) -> bool:
        """Whether the samples go out as they come."""
        return self == PLAIN


PLAIN = Style(Format(Codec.PCM_S16, SOURCE_RATE))


def read_style(format: str, speed: float) -> Style:
    """Raises InvalidMessage(field="format")."""
    try:
        return Style(parse_format(format), speed)
    except InvalidMessage as error:
        raise InvalidMessage(error.message, field="format") from error
