"""A telephone: a bridge as they are written between Twilio's Media Streams and ElevenLabs, with our base URL.

Twilio takes mu-law at 8 kHz in base64, here in frames of 20 ms, plays what it has in its buffer and empties that when
it is told to (twilio.com/docs/voice/media-streams/websocket-messages).
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import numpy as np
import pytest
from _frame import LONG_TEXT, TEXT, Stack, check_speech, check_voice, read_pcm
from elevenlabs import AsyncElevenLabs
from websockets.asyncio.client import connect

FRAME_BYTES = 160
RATE = 8000
QUIET = b"\xff"
"""Zero in mu-law."""
SLACK_S = 0.005
"""Times are whole milliseconds, and each sentence is resampled by itself."""
LEAST_SNR_DB = 30
"""What 8 bits of mu-law keep of speech is about 37 dB; A-law read as mu-law has -10."""
OPTIONS = "model_id=eleven_flash_v2_5&output_format=ulaw_8000"


def decode_ulaw(data: bytes) -> np.ndarray:
    """ITU-T G.711, table 2a: mu-law to float32 within -1..1."""
    code = ~np.frombuffer(data, np.uint8)
    size = ((code & 0x0F).astype(np.int32) << 3) + 0x84 << ((code & 0x70) >> 4).astype(np.int32)
    return (np.where(code & 0x80, 0x84 - size, size - 0x84) / 32768).astype(np.float32)


@dataclass
class Call:
    """Twilio's side of one call."""

    sid: str = "MZ18ad3ab5a668481ce02b83e7395059f0"
    frames: list[bytes] = field(default_factory=list)
    """What has been heard, or would be."""
    marks: list[str] = field(default_factory=list)

    async def send(self, message: str) -> None:
        """A message of the bridge."""
        read = json.loads(message)
        assert read["streamSid"] == self.sid
        match read["event"]:
            case "media":
                frame = base64.b64decode(read["media"]["payload"], validate=True)
                assert len(frame) == FRAME_BYTES
                self.frames.append(frame)
            case "clear":
                self.frames.clear()
            case "mark":
                self.marks.append(read["mark"]["name"])

    @property
    def sound(self) -> np.ndarray:
        return decode_ulaw(b"".join(self.frames))


@dataclass
class Bridge:
    """Between a call and the voice service; `sent` counts what came of it."""

    call: Call
    spare: bytes = b""
    sent: int = 0

    async def media(self, audio: bytes) -> None:
        """Cut what has come into frames of 20 ms; the rest waits for more."""
        self.sent += len(audio)
        self.spare += audio
        while len(self.spare) >= FRAME_BYTES:
            frame, self.spare = self.spare[:FRAME_BYTES], self.spare[FRAME_BYTES:]
            payload = base64.b64encode(frame).decode()
            await self._say("media", media={"payload": payload})

    async def finish(self) -> None:
        """Fill the last frame up, and ask to be told when it has been played."""
        if self.spare:
            await self.media(QUIET * (FRAME_BYTES - len(self.spare)))
        await self._say("mark", mark={"name": "spoken"})

    async def clear(self) -> None:
        """The caller interrupts."""
        self.spare = b""
        await self._say("clear")

    async def _say(self, event: str, **more: object) -> None:
        await self.call.send(json.dumps({"event": event, "streamSid": self.call.sid, **more}))


async def think(text: str) -> AsyncIterator[str]:
    """A language model's answer, word by word."""
    for word in text.split():
        yield f"{word} "
        await asyncio.sleep(0)


@pytest.mark.parametrize("voice", ["low", "high"])
async def test_a_caller_hears_an_answer_that_is_still_being_thought_of(stack: Stack, voice: str) -> None:
    """Over the WebSocket: whole frames of 8 kHz, speech in them, as long as the characters say that they last."""
    bridge, aligned_ms = Bridge(Call()), 0
    url = f"{stack.ws}/elevenlabs/v1/text-to-speech/{stack.voices[voice]}/stream-input?{OPTIONS}"
    async with connect(url, additional_headers={"xi-api-key": stack.key}) as service:
        settings = {"stability": 0.5, "similarity_boost": 0.8}
        await service.send(json.dumps({"text": " ", "voice_settings": settings}))
        async for token in think(TEXT):
            await service.send(json.dumps({"text": token}))
        await service.send(json.dumps({"text": ""}))
        async for message in service:
            said = json.loads(message)
            if said.get("audio"):
                await bridge.media(base64.b64decode(said["audio"]))
            if alignment := said.get("alignment"):
                aligned_ms += alignment["charStartTimesMs"][-1] + alignment["charDurationsMs"][-1]
            if said.get("isFinal"):
                break
    heard = bridge.sent / RATE
    await bridge.finish()
    check_speech(bridge.call.sound, RATE, seconds=(1.5, 10))
    check_voice(bridge.call.sound, RATE, voice)
    assert heard == pytest.approx(aligned_ms / 1000, abs=SLACK_S)
    assert bridge.call.marks == ["spoken"]


async def test_a_caller_hears_an_answer_by_http(stack: Stack) -> None:
    """The SDK's stream with timestamps in the telephone's format lasts as long as its last character does, and is what
    linear samples say, as well as mu-law can."""
    client = AsyncElevenLabs(base_url=f"{stack.http}/elevenlabs", api_key=stack.key)
    bridge, end_s = Bridge(Call()), 0.0
    asked = {"voice_id": stack.voices["low"], "text": TEXT, "model_id": "eleven_flash_v2_5"}
    async for chunk in client.text_to_speech.stream_with_timestamps(**asked, output_format="ulaw_8000"):
        await bridge.media(base64.b64decode(chunk.audio_base_64))
        if chunk.alignment:
            end_s = chunk.alignment.character_end_times_seconds[-1]
    heard = bridge.sent / RATE
    await bridge.finish()
    check_speech(bridge.call.sound, RATE, seconds=(1.5, 10))
    assert heard == pytest.approx(end_s, abs=SLACK_S)
    plain = read_pcm(b"".join([part async for part in client.text_to_speech.stream(**asked, output_format="pcm_8000")]))
    assert len(plain) == bridge.sent
    error = bridge.call.sound[: len(plain)] - plain
    assert 10 * np.log10(np.sum(plain**2) / np.sum(error**2)) > LEAST_SNR_DB


async def test_a_caller_interrupts_and_is_answered_anew(stack: Stack) -> None:
    """At the first frame of a long answer the bridge hangs up and clears the line; the next answer is heard whole, and
    nothing of the first is in it."""
    url = f"{stack.ws}/elevenlabs/v1/text-to-speech/{stack.voices['low']}/stream-input?{OPTIONS}"
    headers, bridge = {"xi-api-key": stack.key}, Bridge(Call())
    async with connect(url, additional_headers=headers) as service:
        for text in (" ", LONG_TEXT, ""):
            await service.send(json.dumps({"text": text}))
        while not bridge.call.frames:
            await bridge.media(base64.b64decode(json.loads(await service.recv()).get("audio") or ""))
    await bridge.clear()
    assert bridge.call.frames == []
    long = bridge.sent
    async with connect(url, additional_headers=headers) as service:
        for text in (" ", TEXT, ""):
            await service.send(json.dumps({"text": text}))
        async for message in service:
            await bridge.media(base64.b64decode(json.loads(message).get("audio") or ""))
    await bridge.finish()
    check_speech(bridge.call.sound, RATE, seconds=(1.5, 10))
    assert len(bridge.call.sound) == pytest.approx(bridge.sent - long, abs=FRAME_BYTES)
