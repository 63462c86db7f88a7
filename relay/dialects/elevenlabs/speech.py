"""Speech over HTTP: a whole text in, its audio out, with or without the times of its characters."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from relay.api.answers import JSON
from relay.api.bodies import parse_json, parse_model, receive
from relay.audio.encoding import load_codec
from relay.dialects.attention import utter_while_there
from relay.dialects.elevenlabs.alignment import Tile
from relay.dialects.elevenlabs.keys import need_key
from relay.dialects.elevenlabs.messages import VoiceSettings, check_text
from relay.dialects.elevenlabs.options import read_options
from relay.dialects.elevenlabs.voicing import Voicing
from relay.dialects.languages import check_language
from relay.doors.http_audio import StreamedAnswer
from relay.doors.reception import Reception
from relay.doors.utterance import Utterance
from relay.entrance.authentication import find_origin
from relay.errors import NothingToSay, TextTooLong
from relay.speaking.events import Audio, Done, SentenceBegun, SentenceEnded

MAX_TEXT = 40_000
"""Characters of one request: what ElevenLabs' fastest model takes."""
MAX_BODY_BYTES = 256 * 1024
"""As many characters at six bytes each, as JSON may write them."""
_PATH = "/v1/text-to-speech/{voice}"
_BASE64_BYTES = 3


class SpeechRequest(BaseModel):
    """What of a request makes a difference; model, seed and neighbouring texts are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    text: str
    voice_settings: VoiceSettings | None = Field(None)
    language_code: str | None = None


class SpeechDoor:
    """The four ways to have a text spoken."""

    def __init__(self, reception: Reception) -> None:
        self._reception = reception

    def routes(self) -> list[Route]:
        """Where they are."""
        return [
            Route(_PATH, self.speak, methods=["POST"]),
            Route(f"{_PATH}/stream", self.speak, methods=["POST"]),
            Route(f"{_PATH}/with-timestamps", self.speak_timed, methods=["POST"]),
            Route(f"{_PATH}/stream/with-timestamps", self.stream_timed, methods=["POST"]),
        ]

    async def speak(self, request: Request) -> Response:
        """The audio and nothing else, as it comes."""
        utterance, voicing, media_type = await self._begin(request)
        return StreamedAnswer(utterance, _write_audio(utterance, voicing), media_type=media_type)

    async def speak_timed(self, request: Request) -> Response:
        """One JSON object, written while it is spoken: base64 first, then the times."""
        utterance, voicing, _ = await self._begin(request)
        return StreamedAnswer(utterance, _write_object(utterance, voicing), media_type=JSON)

    async def stream_timed(self, request: Request) -> Response:
        """One JSON object a line, each with a piece of the audio and the times that it settles."""
        utterance, voicing, _ = await self._begin(request)
        return StreamedAnswer(utterance, _write_lines(utterance, voicing), media_type=JSON)

    async def _begin(self, request: Request) -> tuple[Utterance, Voicing, str]:
        visitor = await self._reception.admit(need_key(request), find_origin(request))
        options = read_options(request.query_params)
        too_long = TextTooLong(MAX_TEXT, "request")
        raw = b"".join([part async for part in receive(request, MAX_BODY_BYTES, too_long)])
        asked = parse_model(SpeechRequest, parse_json(raw))
        check_text(asked.text, MAX_TEXT, "request")
        check_language("language_code", asked.language_code)
        if not asked.text.strip():
            raise NothingToSay
        settings = asked.voice_settings
        speed = settings.rate if settings else 1.0
        await load_codec(options.format, speed=speed)
        voicing = Voicing(options.format, speed, closing_space=False)
        voicing.aligner.push(asked.text)
        voice = request.path_params["voice"]
        utterance = await utter_while_there(self._reception, visitor, request, voice, asked.text, speed=speed)
        return utterance, voicing, options.format.media_type


async def _voice(utterance: Utterance, voicing: Voicing) -> AsyncIterator[tuple[bytes, Tile | None]]:
    """What is final of the audio and of the times, until all is; raises RelayError."""
    async for event in utterance.events():
        match event:
            case SentenceBegun():
                voicing.aligner.begin(event.sentence, event.start, event.end)
            case SentenceEnded():
                voicing.aligner.end(event.sentence)
            case Audio():
                yield voicing.take(event)
            case Done():
                yield voicing.finish()


async def _write_audio(utterance: Utterance, voicing: Voicing) -> AsyncIterator[bytes]:
    async for audio, _ in _voice(utterance, voicing):
        if audio:
            yield audio


async def _write_object(utterance: Utterance, voicing: Voicing) -> AsyncIterator[bytes]:
    yield b'{"audio_base64":"'
    tiles: list[Tile] = []
    kept = b""
    async for audio, tile in _voice(utterance, voicing):
        kept += audio
        whole = len(kept) - len(kept) % _BASE64_BYTES
        if whole:
            yield base64.b64encode(kept[:whole])
            kept = kept[whole:]
        tiles += [tile] if tile is not None else []
    times = json.dumps(_align(tiles)).encode()
    yield base64.b64encode(kept) + b'","alignment":' + times + b',"normalized_alignment":' + times + b"}"


async def _write_lines(utterance: Utterance, voicing: Voicing) -> AsyncIterator[bytes]:
    async for audio, tile in _voice(utterance, voicing):
        if audio or tile is not None:
            times = _align([tile]) if tile is not None else None
            line = {
                "audio_base64": base64.b64encode(audio).decode(),
                "alignment": times,
                "normalized_alignment": times,
            }
            yield json.dumps(line).encode() + b"\n"


def _align(tiles: list[Tile]) -> dict[str, Any]:
    """Seconds from the beginning of the audio; clients that put several answers together add its end by themselves."""
    return {
        "characters": [char for tile in tiles for char in tile.chars],
        "character_start_times_seconds": [ms / 1000 for tile in tiles for ms in tile.starts_ms],
        "character_end_times_seconds": [ms / 1000 for tile in tiles for ms in tile.ends_ms],
    }
