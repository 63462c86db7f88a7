"""Speech that breaks off after it has begun: its client must never take it for the whole."""

from __future__ import annotations

import json

import httpx2
import pytest

from tests.conftest import MakeTenant, MakeVoice, StartStack
from tests.system.conftest import LONG_SENTENCE, SPEECH, embed

PATH = "/openai/v1/audio/speech"


@pytest.mark.parametrize("stream_format", ["audio", "sse"])
async def test_what_breaks_off_is_a_broken_transfer(
    stream_format: str, start_stack: StartStack, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """Without its worker a speech fails: events say why and have no `done`, and the connection breaks in both."""
    tenant = await make_tenant("acme")
    voice = await make_voice(tenant.id, embedding=embed("low"))
    stack = start_stack(only=SPEECH, sentence_timeout_s=1)
    asked = {"input": f"{LONG_SENTENCE}. " * 20, "voice": str(voice), "response_format": "pcm"}
    headers, heard = {"Authorization": f"Bearer {tenant.key}"}, b""
    async with httpx2.AsyncClient(base_url=stack.relay_url, headers=headers, timeout=30) as client:
        with pytest.raises(httpx2.RemoteProtocolError):
            async with client.stream("POST", PATH, json={**asked, "stream_format": stream_format}) as answer:
                assert answer.status_code == 200
                async for piece in answer.aiter_bytes():
                    if not heard:
                        stack.pause("worker")
                    heard += piece
    stack.resume("worker")
    if stream_format == "sse":
        *_, last = [block for block in heard.decode().split("\n\n") if block]
        event = json.loads(last.removeprefix("data: "))
        assert event["type"] == "error"
        assert set(event["error"]) == {"message", "type", "param", "code"}
        assert b"speech.audio.done" not in heard
