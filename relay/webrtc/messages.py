"""What clients say on the data channel beside the native protocol: pings, signalling, and the microphone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from relay.errors import InvalidMessage
from relay.native.messages import MAX_MESSAGE_BYTES
from relay.webrtc.floor import Played, Playing

_PING = "ping"
_FIXED = frozenset({"format", "speed"})
"""What the WebSocket offers and a track does not."""


@dataclass(frozen=True, slots=True)
class Ping:
    """The client is there."""


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The client is going."""


@dataclass(frozen=True, slots=True)
class Aside:
    """Something that is for other servers; it is passed over."""


@dataclass(frozen=True, slots=True)
class Native:
    """A message of the native protocol, as it came."""

    raw: str


class StartCapture(BaseModel):
    """From now on the microphone is recorded."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)
    type: Literal["capture"]
    action: Literal["start"]
    consent: Annotated[str, Field(min_length=1, max_length=64)]
    name: Annotated[str, Field(min_length=1, max_length=200)]


class StopCapture(BaseModel):
    """The recording has ended: make a voice of it, or throw it away."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)
    type: Literal["capture"]
    action: Literal["stop", "discard"]


Message = Ping | Goodbye | Aside | Native | StartCapture | StopCapture
_CAPTURE: TypeAdapter[StartCapture | StopCapture] = TypeAdapter(
    Annotated[StartCapture | StopCapture, Field(discriminator="action")]
)


def read_peer_message(raw: str | bytes, voice: str | None = None) -> Message:
    """Read one message; `voice` is for contexts that are opened without one. Raises InvalidMessage."""
    if isinstance(raw, bytes):
        raise InvalidMessage("clients send JSON text, no binary messages")
    if raw.startswith(_PING):
        return Ping()
    if len(raw) > MAX_MESSAGE_BYTES:
        raise InvalidMessage(f"a message has at most {MAX_MESSAGE_BYTES // 1024} KiB")
    data = _parse(raw)
    match data.get("type"):
        case "capture":
            return _read_capture(data)
        case "signalling":
            inner = data.get("message")
            return Goodbye() if isinstance(inner, dict) and inner.get("type") == "peerLeft" else Aside()
        case "open" | "resume" if data.keys() & _FIXED:
            field = min(data.keys() & _FIXED)
            raise InvalidMessage(f"`{field}`: the audio of WebRTC is Opus as it was spoken; leave it out", field=field)
        case "open" if voice is not None and "voice" not in data:
            return Native(json.dumps({**data, "voice": voice}))
    # Pipecat's clients talk RTVI to the bots behind other servers, from the first second on.
    return Aside() if data.get("label") == "rtvi-ai" else Native(raw)


def show_note(note: Playing | Played) -> str:
    """What tells a client that it hears a context now, or has heard all of it."""
    named = {"context": note.context, "number": note.number}
    if isinstance(note, Played):
        return json.dumps({"type": "played", **named})
    return json.dumps({"type": "playing", **named, "at_ms": round(1000 * note.at_s)})


def _parse(raw: str) -> dict[str, Any]:
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise InvalidMessage("the message is not JSON; send one object a message") from error
    if not isinstance(data, dict):
        raise InvalidMessage("the message is not a JSON object")
    return data


def _read_capture(data: dict[str, Any]) -> StartCapture | StopCapture:
    try:
        return _CAPTURE.validate_python(data)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = str(problem["loc"][-1]) if problem["loc"] else "action"
        if problem["type"].startswith("union_tag"):
            raise InvalidMessage("`action` must be one of: start, stop, discard", field="action") from error
        raise InvalidMessage(f"`{field}`: {problem['msg'].lower()}", field=field) from error
