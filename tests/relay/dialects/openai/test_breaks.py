"""Speech that does not come about, or breaks off: its client must never take what it has for the whole."""

from __future__ import annotations

import asyncio
import json
import socket
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.conftest import RunningStack, StartStack, wait_until
from tests.relay.dialects.openai.conftest import PATH, Speaking, count_contexts, knock
from tests.system.conftest import LONG_SENTENCE, SPEECH

LONG = f"{LONG_SENTENCE}. " * 20


@pytest.fixture
def stack(start_stack: StartStack) -> RunningStack:
    """Impatient: with sentences that do not come, and with clients that do not read."""
    return start_stack(only=SPEECH, sentence_timeout_s=1, send_timeout_s=1)


@pytest.mark.parametrize("stream_format", ["audio", "sse"])
async def test_what_breaks_off_is_a_broken_transfer(stream_format: str, stack: RunningStack, acme: Speaking) -> None:
    """Without its worker a speech fails: events say why and have no `done`, and the connection breaks in both."""
    asked = {"input": LONG, "voice": acme.voice, "response_format": "pcm", "stream_format": stream_format}
    heard = b""
    async with knock(stack, acme.tenant) as http:
        with pytest.raises(httpx2.RemoteProtocolError):
            async with http.stream("POST", PATH, json=asked) as answer:
                assert answer.status_code == 200
                async for piece in answer.aiter_bytes():
                    if not heard:
                        stack.pause("worker")
                    heard += piece
    stack.resume("worker")
    assert count_contexts(stack) == 0
    assert "Traceback" not in stack.log.read_text()
    if stream_format == "sse":
        *_, last = [block for block in heard.decode().split("\n\n") if block]
        event = json.loads(last.removeprefix("data: "))
        assert event["type"] == "error"
        assert set(event["error"]) == {"message", "type", "param", "code"}
        assert b"speech.audio.done" not in heard


@pytest.mark.parametrize("stream_format", ["audio", "sse"])
async def test_what_does_not_begin_has_a_status(stream_format: str, stack: RunningStack, acme: Speaking) -> None:
    """Before the first sound there is still time to say it as an error, with a time to come back."""
    asked = {"input": "Hello.", "voice": acme.voice, "stream_format": stream_format}
    stack.pause("worker")
    async with knock(stack, acme.tenant) as http:
        answer = await http.post(PATH, json=asked)
    stack.resume("worker")
    assert (answer.status_code, answer.json()["error"]["type"]) == (503, "server_error"), answer.text
    assert int(answer.headers["retry-after"]) > 0


async def test_a_client_that_does_not_read_is_left(stack: RunningStack, acme: Speaking) -> None:
    """Its context is gone when nothing was taken for as long as the settings allow."""
    asked = {"input": LONG, "voice": acme.voice, "response_format": "pcm", "speed": 0.25}
    body = json.dumps(asked).encode()
    head = f"POST {PATH} HTTP/1.1\r\nHost: relay\r\nAuthorization: Bearer {acme.tenant.key}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    url = urlsplit(stack.relay_url)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((url.hostname, url.port))
        client.sendall(head.encode() + body)
        assert client.recv(12) == b"HTTP/1.1 200"
        assert await asyncio.to_thread(count_contexts, stack) == 1
        await asyncio.to_thread(wait_until, lambda: count_contexts(stack) == 0)
