"""`POST /tts/bytes` and `POST /tts/sse`: a whole transcript, as audio or as the events that the WebSocket has."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from relay.audio.encoding import load_codec
from relay.dialects.attention import utter_while_there
from relay.dialects.cartesia import frames
from relay.dialects.cartesia.bodies import read_body
from relay.dialects.cartesia.contexts import Context, Stretch
from relay.dialects.cartesia.keys import find_key
from relay.dialects.cartesia.messages import MAX_ID
from relay.dialects.cartesia.styles import Style, Wanted, check_transcript, read_style
from relay.doors.http_audio import StreamedAnswer
from relay.doors.reception import Reception
from relay.doors.utterance import Utterance
from relay.entrance.authentication import find_origin
from relay.errors import RelayError
from relay.speaking.events import Audio, Done, Event

EVENTS = "text/event-stream"


class SpeechRequest(Wanted):
    """What is to be said, and how."""

    context_id: Annotated[str | None, Field(max_length=MAX_ID)] = None


@dataclass(frozen=True, slots=True)
class SpeechDoor:
    """Says what it is sent, and answers with the first audio; what goes wrong before has a status of its own."""

    reception: Reception

    async def send_bytes(self, request: Request) -> Response:
        """The audio alone, in the container that is asked for."""
        _, style, utterance = await self._begin(request, raw_only=False)
        return StreamedAnswer(utterance, write_audio(utterance, style), media_type=style.sound.media_type)

    async def send_events(self, request: Request) -> Response:
        """Raw audio in events, with the times of the words where they are asked for."""
        asked, style, utterance = await self._begin(request, raw_only=True)
        teller = Teller(asked.context_id, style, request.state.request_id)
        return StreamedAnswer(utterance, write_events(utterance, teller), media_type=EVENTS)

    async def _begin(self, request: Request, *, raw_only: bool) -> tuple[SpeechRequest, Style, Utterance]:
        visitor = await self.reception.admit(find_key(request), find_origin(request))
        asked = await read_body(request, SpeechRequest)
        check_transcript(asked.transcript)
        style = read_style(asked, raw_only=raw_only)
        await load_codec(style.sound.format, speed=style.speed)
        utterance = await utter_while_there(
            self.reception, visitor, request, style.voice, asked.transcript, speed=style.speed
        )
        return asked, style, utterance


async def write_audio(utterance: Utterance, style: Style) -> AsyncIterator[bytes]:
    """The file, in pieces; raises RelayError when the speech breaks off."""
    encoder = style.sound.encode(style.speed)
    if style.sound.header:
        yield style.sound.header
    async for event in utterance.events():
        if isinstance(event, Audio) and (piece := encoder.encode(event.pcm)):
            yield piece
    if piece := encoder.finish():
        yield piece


async def write_events(utterance: Utterance, teller: Teller) -> AsyncIterator[bytes]:
    """The events of the speech to `done`, or to an `error`."""
    try:
        async for event in utterance.events():
            for frame in teller.tell(event):
                yield write_event(frame)
    except RelayError as error:
        yield write_event(frames.error(error, teller.context, teller.request))


class Teller:
    """What is heard of one transcript, as frames; `context` is the client's own id for it, if it gave one."""

    def __init__(self, context: str | None, style: Style, request: str) -> None:
        self.context = context
        self.request = request
        self._timestamps = style.timestamps
        self._stretch = Stretch("", Context("", style), 0.0)

    def tell(self, event: Event) -> list[frames.Frame]:
        """An event in Cartesia's words."""
        stretch = self._stretch
        match event:
            case Audio():
                told = self._play(stretch.encode(event))
                if event.words and self._timestamps:
                    told.append(frames.timestamps(self.context, event.words, 0.0, stretch.context.style.speed))
                return told
            case Done():
                return [*self._play(stretch.finish()), frames.done(self.context)]
        return []

    def _play(self, data: bytes) -> list[frames.Frame]:
        return [frames.chunk(self.context, data, self._stretch.step_ms)] if data else []


def write_event(frame: frames.Frame) -> bytes:
    """A frame as a server-sent event (WHATWG HTML, "Server-sent events")."""
    return f"event: {frame['type']}\ndata: {json.dumps(frame)}\n\n".encode()
