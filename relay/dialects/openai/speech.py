"""`POST /v1/audio/speech`: a text spoken while it is being sent, as audio or as server-sent events."""

from __future__ import annotations

import base64
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from relay.api.texts import is_alias
from relay.audio.encoding import Encoder, load_codec, make_encoder
from relay.dialects.attention import utter_while_there
from relay.dialects.openai.errors import describe
from relay.dialects.openai.requests import SpeechRequest, read_speech
from relay.doors.http_audio import StreamedAnswer
from relay.doors.reception import Reception
from relay.doors.utterance import Utterance
from relay.entrance.authentication import find_origin, read_bearer
from relay.errors import RelayError, RequestRefused, UnknownVoice
from relay.speaking.events import Audio, Done

EVENTS = "text/event-stream"
_TOKEN_SAMPLES = 1920


class Usage(BaseModel):
    """What a speech has cost: a token is a character of the input, or 80 ms of speech."""

    input_tokens: int
    output_tokens: int
    total_tokens: int


@dataclass(frozen=True, slots=True)
class SpeechDoor:
    """Says what it is sent."""

    reception: Reception

    async def speak(self, request: Request) -> Response:
        """Answers with the first audio; what goes wrong before is an error with a status of its own."""
        visitor = await self.reception.admit(read_bearer(request), find_origin(request))
        asked = await read_speech(request)
        speed = asked.speed or 1.0
        await load_codec(asked.format, speed=speed)
        encoder = make_encoder(asked.format, speed=speed)
        try:
            utterance = await utter_while_there(
                self.reception, visitor, request, asked.voice_name, asked.input, speed=speed
            )
        except UnknownVoice as error:
            raise explain_voice(asked.voice_name) from error
        if asked.stream_format == "sse":
            return StreamedAnswer(utterance, write_events(utterance, encoder, asked), media_type=EVENTS)
        return StreamedAnswer(utterance, write_audio(utterance, encoder), media_type=asked.format.media_type)


async def write_audio(utterance: Utterance, encoder: Encoder) -> AsyncIterator[bytes]:
    """The file, in pieces; raises RelayError when the speech breaks off."""
    async for event in utterance.events():
        if isinstance(event, Audio) and (piece := encoder.encode(event.pcm)):
            yield piece
    if piece := encoder.finish():
        yield piece


async def write_events(utterance: Utterance, encoder: Encoder, asked: SpeechRequest) -> AsyncIterator[bytes]:
    """The same file in deltas, then what it has cost. An `error` instead of that, and the RelayError itself after it.

    A client that reads nothing but deltas would take what came before an error for the whole: so its transfer breaks.
    """
    samples = 0
    try:
        async for event in utterance.events():
            if isinstance(event, Audio) and (piece := encoder.encode(event.pcm)):
                yield write_delta(piece)
            elif isinstance(event, Done):
                samples = event.samples
    except RelayError as error:
        yield write_error(error)
        raise
    if piece := encoder.finish():
        yield write_delta(piece)
    yield write_done(len(asked.input), samples)


def write_delta(audio: bytes) -> bytes:
    """A piece of the audio, in Base64 (WHATWG HTML, "Server-sent events")."""
    return b'data: {"type":"speech.audio.delta","audio":"' + base64.b64encode(audio) + b'"}\n\n'


def write_done(characters: int, samples: int) -> bytes:
    """The end of the audio."""
    output = math.ceil(samples / _TOKEN_SAMPLES)
    usage = Usage(input_tokens=characters, output_tokens=output, total_tokens=characters + output)
    return b'data: {"type":"speech.audio.done","usage":' + usage.model_dump_json().encode() + b"}\n\n"


def write_error(error: RelayError) -> bytes:
    """That no more audio comes, and why."""
    return b'data: {"type":"error","error":' + describe(error).model_dump_json().encode() + b"}\n\n"


def explain_voice(name: str) -> RequestRefused:
    """That there is no such voice, and how to have one of this name."""
    way = "`voice` is the id of one of your voices, or an alias that you have set"
    if is_alias(name):
        way += (
            f'; to let {name!r} stand for a voice, send PUT /v1/aliases/{name} {{"voice": "<its id>"}} to this service'
        )
    text = f"there is no voice {name[:64]!r} that is ready: {way}; GET /v1/voices has the ids"
    return RequestRefused(404, "voice_not_found", text, field="voice")
