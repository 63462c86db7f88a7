"""The WebRTC door and a real Chromium: what its RTCPeerConnection hears, and what its data channel is told."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relay.native.frames import HEADER
from tests.browser import open_browser
from tests.conftest import RunningStack
from tests.relay.conftest import open_socket
from tests.relay.webrtc.conftest import Speaker
from tests.relay.webrtc.test_speech import MEL_HOP, RATE, TEXT, speak_native

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = (ROOT / "tests" / "browser_webrtc.js").read_text()
SILENT_MICROPHONE = ROOT / "samples" / "reference-high.wav"


def listen(stack: RunningStack, profile: Path, key: str, messages: list[dict[str, object]]) -> dict[str, Any]:
    """What the browser has heard after these messages."""
    with open_browser(SILENT_MICROPHONE, profile) as chrome:
        chrome.get(f"{stack.relay_url}/v1/openapi.json")
        heard: dict[str, Any] = chrome.execute_async_script(SCRIPT, "/v1/whep", key, messages)
    assert "error" not in heard, heard["error"]
    return heard


@pytest.mark.timeout(90)
async def test_a_browser_hears_what_is_spoken(stack: RunningStack, speaker: Speaker, tmp_path: Path) -> None:
    """The received track holds speech of the audio's length and energy; mel frames and words come beside it."""
    messages: list[dict[str, object]] = [
        {"type": "open", "context": "c", "voice": str(speaker.voice), "mel": True},
        {"type": "text", "context": "c", "text": TEXT},
        {"type": "end", "context": "c"},
    ]
    heard = await asyncio.to_thread(listen, stack, tmp_path / "profile", speaker.tenant.key, messages)
    async with open_socket(stack, speaker.tenant.key) as socket:
        pcm = await speak_native(socket, speaker)
    (done,) = (told for told in heard["told"] if told["type"] == "done")
    spoken_s = done["samples"] / RATE
    assert abs(heard["loudS"] - spoken_s) < 0.1 * spoken_s
    power, expected = heard["energy"] / 48_000, float((pcm**2).sum()) / RATE
    assert 0.7 < power / expected < 1.3
    mels = [bytes(mel) for mel in heard["mels"]]
    frames = sum(len(np.frombuffer(mel[HEADER.size :], "<f2").reshape(-1, 80)) for mel in mels)
    assert frames * MEL_HOP == done["samples"]
    words = [word["text"] for told in heard["told"] if told["type"] == "words" for word in told["words"]]
    assert words == TEXT.split()
    assert heard["stats"]["lost"] == 0
    print({name: heard[name] for name in ("connectedMs", "firstLoudMs", "loudS", "stats")}, spoken_s, power / expected)
