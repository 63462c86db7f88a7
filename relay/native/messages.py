"""What clients say in the native protocol (docs/protocol.md), read and checked."""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from relay.audio.encoding import FASTEST, SLOWEST
from relay.errors import InvalidMessage, TextTooLong
from relay.native.styles import DEFAULT_FORMAT, read_style
from relay.speaking.commands import Cancel, Command, End, Flush, Open, Resume, Text

MAX_TEXT = 10_000
MAX_MESSAGE_BYTES = 64 * 1024

ContextId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, use_attribute_docstrings=True)

    context: ContextId
    """An id of the client's choice."""


class _Styled(_Message):
    format: Annotated[str, Field(max_length=64)] = DEFAULT_FORMAT
    """Of the audio in binary frames: a name of docs/formats.md, such as `opus_48000_64` or `ulaw_8000`."""
    speed: Annotated[float, Field(ge=SLOWEST, le=FASTEST, allow_inf_nan=False)] = 1.0
    """How many times faster than it was spoken, in the same pitch."""


class OpenMessage(_Styled):
    """Begin a context in a voice."""

    type: Literal["open"]
    voice: Annotated[str, Field(min_length=1, max_length=64)]
    """Its id or an alias."""
    mel: bool = False
    """Whether mel frames are wanted beside the audio."""

    def command(self) -> Command:
        """What it asks for; raises InvalidMessage."""
        return Open(self.context, self.voice, self.mel, manner=read_style(self.format, self.speed), speed=self.speed)


class ResumeMessage(_Styled):
    """Go on with a context whose connection was lost, after the last chunk that its client has."""

    type: Literal["resume"]
    token: Annotated[str, Field(min_length=1, max_length=64)]
    """As `opened` gave it."""
    sentence: Annotated[int, Field(ge=0, le=1_000_000)]
    """The one of the last chunk; 0 when the client has none."""
    chunk: Annotated[int, Field(ge=-1, le=1_000_000)]
    """-1 when the client has nothing of the sentence."""

    def command(self) -> Command:
        """What it asks for; raises InvalidMessage."""
        manner = read_style(self.format, self.speed)
        return Resume(self.context, self.token, self.sentence, self.chunk, manner=manner, speed=self.speed)


class TextMessage(_Message):
    """The next piece of a context's text."""

    type: Literal["text"]
    text: Annotated[str, Field(json_schema_extra={"maxLength": MAX_TEXT})]
    """Pieces are joined as they are."""

    def command(self) -> Command:
        """What it asks for; raises TextTooLong or InvalidMessage."""
        _check_text(self.text)
        return Text(self.context, self.text)


class FlushMessage(_Message):
    """Speak what is there."""

    type: Literal["flush"]

    def command(self) -> Command:
        """What it asks for."""
        return Flush(self.context)


class EndMessage(_Message):
    """No more text."""

    type: Literal["end"]

    def command(self) -> Command:
        """What it asks for."""
        return End(self.context)


class CancelMessage(_Message):
    """Stop now."""

    type: Literal["cancel"]

    def command(self) -> Command:
        """What it asks for."""
        return Cancel(self.context)


CLIENT_MESSAGES = (OpenMessage, ResumeMessage, TextMessage, FlushMessage, EndMessage, CancelMessage)
ClientMessage = OpenMessage | ResumeMessage | TextMessage | FlushMessage | EndMessage | CancelMessage
_ADAPTER: TypeAdapter[ClientMessage] = TypeAdapter(Annotated[ClientMessage, Field(discriminator="type")])
_TYPES = "open, resume, text, flush, end, cancel"


def read_message(raw: str) -> Command:
    """Read one message; raises InvalidMessage with the field at fault, or TextTooLong."""
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise InvalidMessage("the message is not JSON; send one object a message") from error
    if not isinstance(data, dict):
        raise InvalidMessage("the message is not a JSON object")
    try:
        message = _ADAPTER.validate_python(data)
    except ValidationError as error:
        raise _invalid(error) from error
    return message.command()


def _check_text(text: str) -> None:
    if len(text) > MAX_TEXT:
        raise TextTooLong(MAX_TEXT, "message")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidMessage(
            f"`text` holds half of a surrogate pair at character {error.start}; split text between characters",
            field="text",
        ) from error


def _invalid(error: ValidationError) -> InvalidMessage:
    problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
    if problem["type"] in ("union_tag_invalid", "union_tag_not_found"):
        return InvalidMessage(f"`type` must be one of: {_TYPES}", field="type")
    field = str(problem["loc"][-1])
    if field == "context":
        return InvalidMessage("`context` must be 1 to 64 characters of A-Z a-z 0-9 _ . -", field="context")
    return InvalidMessage(f"`{field}`: {problem['msg'].lower()}", field=field)
