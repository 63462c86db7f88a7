"""What clients say over a WebSocket, read and checked; the two sockets share one kind of message."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from relay.errors import InvalidMessage, TextTooLong, Unauthorized

MAX_TEXT = 10_000
"""Characters of one message."""
MAX_NAME = 256
"""Characters of a context's id."""
MIN_SPEED = 0.25
MAX_SPEED = 4.0


class VoiceSettings(BaseModel):
    """Of these only the speed changes anything here; the others are taken and kept to be compared."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    stability: float | None = None
    similarity_boost: float | None = None
    style: float | None = None
    use_speaker_boost: bool | None = None
    speed: Annotated[float, Field(ge=MIN_SPEED, le=MAX_SPEED)] | None = None

    @property
    def rate(self) -> float:
        """How much faster than usual."""
        return 1.0 if self.speed is None else self.speed


class Message(BaseModel):
    """Anything that a client says. `xi-api-key` and `context_id` come in two spellings each."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    text: str | None = None
    context_id: Annotated[str, Field(max_length=MAX_NAME)] | None = Field(
        None, validation_alias=AliasChoices("context_id", "contextId")
    )
    flush: bool | None = None
    close_context: bool | None = None
    close_socket: bool | None = None
    voice_settings: VoiceSettings | None = None

    @property
    def settings(self) -> VoiceSettings | None:
        """The settings, where there are any in what was sent for settings."""
        return self.voice_settings if self.voice_settings and self.voice_settings.model_fields_set else None


def read_object(raw: str | bytes) -> dict[str, Any]:
    """A message as the object that it must be; raises InvalidMessage."""
    if isinstance(raw, bytes):
        raise InvalidMessage("send JSON text, no binary messages")
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise InvalidMessage("the message is not JSON; send one object a message") from error
    if not isinstance(data, dict):
        raise InvalidMessage("the message is not a JSON object")
    return data


def read_message(data: dict[str, Any]) -> Message:
    """An object as a message; raises InvalidMessage with the field at fault, or TextTooLong."""
    try:
        message = Message.model_validate(data)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = ".".join(str(part) for part in problem["loc"])[:100]
        raise InvalidMessage(f"`{field}`: {problem['msg'].lower()}", field=field) from error
    check_text(message.text or "", MAX_TEXT, "message")
    return message


def check_text(text: str, limit: int, scope: str) -> None:
    """Raises TextTooLong, or InvalidMessage for half of a surrogate pair."""
    if len(text) > limit:
        raise TextTooLong(limit, scope)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        problem = f"`text` holds half of a surrogate pair at character {error.start}; split text between characters"
        raise InvalidMessage(problem, field="text") from error


def read_name(data: dict[str, Any]) -> str | None:
    """The id of a context in an object that may be no message, so that an error can name it."""
    name = data.get("context_id", data.get("contextId"))
    return name if isinstance(name, str) and len(name) <= MAX_NAME else None


def read_key(data: dict[str, Any]) -> str:
    """The API key of a first message (`authorization` may say that it is a bearer's); empty where there is none.

    Raises Unauthorized for what cannot be a key: JSON can hold characters that no header can.
    """
    for field in ("xi-api-key", "xi_api_key", "authorization"):
        value = data.get(field)
        if isinstance(value, str) and value:
            if not value.isascii():
                raise Unauthorized
            return strip_scheme(value)
    return ""


def strip_scheme(value: str) -> str:
    """A key without the `Bearer` before it."""
    scheme, _, rest = value.strip().partition(" ")
    return rest.strip() if scheme.lower() == "bearer" else value.strip()
