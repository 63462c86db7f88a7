"""The body of `POST /v1/audio/speech`, and the formats that it can ask for (OpenAI API reference, "Create speech")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request

from relay.api.answers import JSON
from relay.api.bodies import parse_json, receive, unsupported
from relay.audio.formats import Codec, Format
from relay.dialects.openai.errors import refuse_field
from relay.errors import RequestRefused

MAX_INPUT = 4096
MAX_BODY_BYTES = 128 * 1024
"""Of input and instructions, in JSON's longest spelling of a character: twelve bytes."""
MIN_SPEED, MAX_SPEED = 0.25, 4.0

ResponseFormat = Literal["mp3", "opus", "aac", "flac", "wav", "pcm"]
StreamFormat = Literal["audio", "sse"]

FORMATS: Mapping[ResponseFormat, Format] = {
    "mp3": Format(Codec.MP3, 24_000, 96_000),
    "opus": Format(Codec.OPUS, 48_000, 64_000),
    "aac": Format(Codec.AAC, 24_000, 96_000),
    "flac": Format(Codec.FLAC, 24_000),
    "wav": Format(Codec.WAV, 24_000),
    "pcm": Format(Codec.PCM_S16, 24_000),
}
"""At 24 kHz, which clients take for granted where nothing says otherwise; Opus has 48 kHz alone."""


class VoiceReference(BaseModel):
    """A voice as an object."""

    model_config = ConfigDict(strict=True, frozen=True)

    id: str


class SpeechRequest(BaseModel):
    """What is to be said, in which voice and how; what else there is has no effect."""

    model_config = ConfigDict(strict=True, frozen=True)

    input: Annotated[str, Field(min_length=1, max_length=MAX_INPUT)]
    voice: str | VoiceReference
    model: str | None = None
    instructions: str | None = None
    response_format: ResponseFormat | None = None
    stream_format: StreamFormat | None = None
    speed: Annotated[float, Field(ge=MIN_SPEED, le=MAX_SPEED)] | None = None

    @property
    def voice_name(self) -> str:
        """The id or the alias."""
        return self.voice if isinstance(self.voice, str) else self.voice.id

    @property
    def format(self) -> Format:
        """What the audio is to be."""
        return FORMATS[self.response_format or "mp3"]


async def read_speech(request: Request) -> SpeechRequest:
    """The body of a request; raises RequestRefused (400, 408, 413, 415) or InvalidRequest."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise unsupported(f"send the body as `{JSON}`")
    too_large = RequestRefused(
        413, "body_too_large", f"a body has at most {MAX_BODY_BYTES // 1024} KiB, `input` {MAX_INPUT:,} characters"
    )
    return parse_speech(b"".join([part async for part in receive(request, MAX_BODY_BYTES, too_large)]))


def parse_speech(raw: bytes) -> SpeechRequest:
    """Raises RequestRefused (400) with the field at fault, or InvalidRequest for what is no JSON."""
    try:
        return SpeechRequest.model_validate(parse_json(raw))
    except ValidationError as error:
        raise refuse_field(error) from error
