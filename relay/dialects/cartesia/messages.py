"""What clients say over Cartesia's WebSocket, read and checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from relay.api.bodies import parse_json
from relay.dialects.cartesia.styles import Flag, Wanted, check_transcript, read_strictly
from relay.errors import InvalidMessage, InvalidRequest

MAX_ID = 256

ContextId = Annotated[str, Field(min_length=1, max_length=MAX_ID)]


class _Cancel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    context_id: ContextId


class _Generate(Wanted):
    context_id: ContextId
    continue_: Annotated[Flag, Field(alias="continue")] = None
    flush: Flag = None


@dataclass(frozen=True, slots=True)
class Generation:
    """The next piece of a context's text."""

    context: str
    text: str
    more: bool
    """Whether further text may follow."""
    flush: bool
    """Whether what is there is to be spoken without waiting for more."""
    wanted: Wanted

    @property
    def blank(self) -> bool:
        """Whether there are no words in it: so clients end contexts, and flush them."""
        return not self.text.strip()


@dataclass(frozen=True, slots=True)
class Cancellation:
    """Stop a context now."""

    context: str


def read_message(raw: str | bytes) -> Generation | Cancellation:
    """Read one message; raises InvalidMessage with the field at fault, or TextTooLong."""
    value = _parse(raw)
    if value.get("cancel") is True:
        return Cancellation(read_strictly(_Cancel, value).context_id)
    read = read_strictly(_Generate, value)
    check_transcript(read.transcript)
    return Generation(read.context_id, read.transcript, bool(read.continue_), bool(read.flush), read)


def find_context(raw: str | bytes) -> str | None:
    """The context that a message names which cannot be read otherwise."""
    try:
        found = _parse(raw).get("context_id")
    except InvalidMessage:
        return None
    return found if isinstance(found, str) and 1 <= len(found) <= MAX_ID else None


def _parse(raw: str | bytes) -> dict[str, Any]:
    if isinstance(raw, bytes):
        raise InvalidMessage("clients send JSON text, no binary frames")
    try:
        value = parse_json(raw.encode())
    except InvalidRequest as error:
        raise InvalidMessage(error.message.replace("the body", "the message"), field=error.field) from error
    except UnicodeEncodeError as error:
        raise InvalidMessage("the message is no text that UTF-8 can hold") from error
    if not isinstance(value, dict):
        raise InvalidMessage("the message is not a JSON object")
    return value
