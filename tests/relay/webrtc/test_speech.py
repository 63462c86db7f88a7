"""The WebRTC door with real speech: a client of aiortc, a relay, and a worker."""

from __future__ import annotations

import asyncio

import httpx2

from tests.relay.webrtc.conftest import Speaker
from tests.relay.webrtc.listening import connect_whep

TEXT = "The first sentence is here. The second one follows it."


async def test_what_is_spoken_is_heard_to_its_end(http: httpx2.AsyncClient, speaker: Speaker) -> None:
    """The track holds as much speech as the samples that `done` names, and words come with their times."""
    async with connect_whep(http) as listener:
        await listener.until_connected()
        listener.open(speaker.voice)
        listener.say(type="text", context="c", text=TEXT)
        listener.say(type="end", context="c")
        done = await listener.until("done")
        await listener.until("played")
        await asyncio.sleep(0.2)
        spoken_s = done["samples"] / 24_000
        assert abs(listener.loud_s() - spoken_s) < 0.1 * spoken_s
        words = [word["text"] for told in listener.told if told["type"] == "words" for word in told["words"]]
        assert words == TEXT.split()
