"""Codecs are loaded where nobody who listens has to wait for it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from relay.audio import encoding
from relay.audio.formats import Format
from relay.dialects.cartesia.face import CartesiaFace
from relay.dialects.elevenlabs.multi_face import MultiFace
from relay.dialects.elevenlabs.options import read_options
from relay.dialects.elevenlabs.stream_face import StreamFace
from relay.doors.codecs import load_codec_for
from relay.doors.face import Face
from relay.native.face import NativeFace
from tests.conftest import MakeTenant, RunningStack

MP3 = "mp3_24000_64"
RAW_ULAW = {"container": "raw", "encoding": "pcm_mulaw", "sample_rate": 8000}
SOCKETS: dict[str, tuple[Callable[[], Face], dict[str, object]]] = {
    "native": (lambda: NativeFace(80), {"type": "open", "context": "c", "voice": "v", "format": MP3}),
    "elevenlabs single": (lambda: StreamFace("v", read_options({"output_format": MP3})), {"text": "Hello. "}),
    "elevenlabs multi": (
        lambda: MultiFace("v", read_options({"output_format": MP3})),
        {"text": "Hello. ", "context_id": "c"},
    ),
    "cartesia": (CartesiaFace, {"context_id": "c", "transcript": "Hello.", "voice": "v", "output_format": RAW_ULAW}),
}
REQUESTS: dict[str, tuple[str, dict[str, object]]] = {
    "elevenlabs": (f"/elevenlabs/v1/text-to-speech/nobody/stream?output_format={MP3}", {"text": "Hello."}),
    "openai": ("/openai/v1/audio/speech", {"input": "Hello.", "voice": "nobody", "response_format": "mp3"}),
    "cartesia": (
        "/cartesia/tts/bytes",
        {"transcript": "Hello.", "voice": "nobody", "output_format": {"container": "mp3", "sample_rate": 24000}},
    ),
}


@pytest.mark.parametrize("door", SOCKETS)
async def test_a_socket_loads_the_codec_of_a_context_before_it_begins(
    door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first encoder of its kind in a process is made beside the event loop, and none is made by a message."""
    threads: list[threading.Thread] = []
    real = encoding._make_pipeline

    def make(format: Format, speed: float) -> encoding.Encoder:
        threads.append(threading.current_thread())
        return real(format, speed)

    monkeypatch.setattr(encoding, "_make_pipeline", make)
    monkeypatch.setattr(encoding, "_loaded", set())
    make_face, message = SOCKETS[door]
    face = make_face()
    commands = face.hear(json.dumps(message), 0.0)
    assert threads == []
    for command in commands:
        await load_codec_for(face, command)
    assert len(threads) == 1 and threads[0] is not threading.main_thread()


@pytest.mark.parametrize("door", REQUESTS)
async def test_a_request_loads_its_codec_before_it_is_spoken(
    door: str, start_relay: Callable[..., RunningStack], make_tenant: MakeTenant
) -> None:
    """FFmpeg is there when the voice is looked for, though nothing was spoken in it."""
    stack = start_relay()
    assert not _has_ffmpeg(stack)
    path, body = REQUESTS[door]
    key = (await make_tenant("acme")).key
    headers: dict[str, Any] = {"Authorization": f"Bearer {key}", "xi-api-key": key}
    async with httpx2.AsyncClient(base_url=stack.relay_url, headers=headers, timeout=30) as client:
        answer = await client.post(path, json=body)
    assert answer.status_code == 404, answer.text
    assert _has_ffmpeg(stack)


def _has_ffmpeg(stack: RunningStack) -> bool:
    maps = Path(f"/proc/{stack.processes['relay'].pid}/maps")
    if not maps.exists():
        pytest.skip("what a process has loaded is read from /proc")
    return "libavcodec" in maps.read_text()
