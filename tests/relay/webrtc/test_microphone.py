"""Enrolment by microphone over WebRTC: a relay, a worker, Celery, and a client whose microphone hears a recording."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
import soundfile
import soxr
from aiortc import MediaStreamTrack
from av import AudioFrame

from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.settings import Settings
from storage.voices.consents import grant_consent
from tests.browser import open_browser
from tests.conftest import DEADLINE_S, STATEMENT, TERMS, MakeTenant, RunningStack, StartStack, Tenant
from tests.relay.webrtc.listening import Listener, connect_whep

OWN_RELAY = True
ROOT = Path(__file__).resolve().parents[3]
RECORDING = ROOT / "samples" / "reference-high.wav"
RATE = 48_000


class Microphone(MediaStreamTrack):
    """20 ms of a recording every 20 ms, and then silence."""

    kind = "audio"

    def __init__(self, sound: np.ndarray[Any, np.dtype[np.int16]]) -> None:
        super().__init__()
        self._sound = sound
        self._next = 0
        self._began: float | None = None

    async def recv(self) -> AudioFrame:
        now = asyncio.get_running_loop().time()
        self._began = now if self._began is None else self._began
        await asyncio.sleep(max(0.0, self._began + self._next * 0.02 - now))
        samples = np.zeros(960, np.int16)
        heard = self._sound[self._next * 960 : (self._next + 1) * 960]
        samples[: len(heard)] = heard
        frame = AudioFrame.from_ndarray(samples[None, :], format="s16", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = RATE, self._next * 960, Fraction(1, RATE)
        self._next += 1
        return frame


def hear_recording() -> Microphone:
    """A microphone beside a person who reads."""
    samples, rate = soundfile.read(RECORDING, dtype="int16")
    return Microphone(soxr.resample(samples, rate, RATE))


@pytest.fixture
def stack(start_stack: StartStack) -> RunningStack:
    """With Celery, which enrols."""
    return start_stack(only=("relay", "worker", "celery"), webrtc_loopback=True)


@pytest.fixture
async def tenant(make_tenant: MakeTenant) -> Tenant:
    return await make_tenant("acme")


@pytest.fixture
async def http(stack: RunningStack, tenant: Tenant) -> AsyncIterator[httpx2.AsyncClient]:
    headers = {"Authorization": f"Bearer {tenant.key}"}
    async with httpx2.AsyncClient(base_url=stack.relay_url, headers=headers, timeout=30) as client:
        yield client


@pytest.fixture
async def consent(database: Database, settings: Settings, tenant: Tenant) -> str:
    async with database.transaction(tenant=tenant.id) as connection:
        return str((await grant_consent(connection, Keyring.from_settings(settings), tenant.id, TERMS, STATEMENT)).id)


async def capture(listener: Listener, consent: str, seconds: float) -> None:
    listener.say(type="capture", action="start", consent=consent, name="By microphone")
    await listener.until("capturing")
    await asyncio.sleep(seconds)
    listener.say(type="capture", action="stop")


async def next_error(listener: Listener) -> dict[str, Any]:
    async with asyncio.timeout(DEADLINE_S):
        while (message := await listener.messages.get())["type"] != "error":
            pass
    return dict(message)


async def test_a_microphone_becomes_a_voice(http: httpx2.AsyncClient, consent: str) -> None:
    """What is recorded between start and stop is enrolled by the consent, and the voice speaks at once."""
    async with connect_whep(http, microphone=hear_recording()) as listener:
        await listener.until_connected()
        await capture(listener, consent, 7.0)
        captured = await listener.until("captured")
        assert (captured["state"], captured["name"]) == ("ready", "By microphone")
        assert 6.5 < captured["seconds"] < 7.5
        listener.open(captured["voice"])
        listener.say(type="text", context="c", text="This is how I sound.")
        listener.say(type="end", context="c")
        await listener.until("played")
    voice = (await http.get(f"/v1/voices/{captured['voice']}")).json()
    assert (voice["state"], voice["consent"]) == ("ready", consent)


async def test_what_cannot_be_enrolled_is_told(http: httpx2.AsyncClient, make_tenant: MakeTenant, consent: str) -> None:
    """Too short, no consent, no scope, no microphone, no recording: an error each, and no voice is left."""
    async with connect_whep(http, microphone=hear_recording()) as listener:
        await listener.until_connected()
        listener.say(type="capture", action="stop")
        assert (await next_error(listener))["code"] == "invalid_message"
        await capture(listener, consent, 1.0)
        assert (await next_error(listener))["code"] == "recording_too_short"
        await capture(listener, "0" * 8, 0.1)
        assert "consent" in (await next_error(listener))["code"]
        listener.say(type="capture", action="start", consent=consent, name="x")
        await listener.until("capturing")
        listener.say(type="capture", action="start", consent=consent, name="x")
        assert (await next_error(listener))["field"] == "action"
        listener.say(type="capture", action="discard")
    async with connect_whep(http) as listener:
        await listener.until_connected()
        listener.say(type="capture", action="start", consent=consent, name="x")
        assert "microphone" in (await next_error(listener))["message"]
    speaking = await make_tenant("acme", scopes=("speak",))
    http.headers["Authorization"] = f"Bearer {speaking.key}"
    async with connect_whep(http, microphone=hear_recording()) as listener:
        await listener.until_connected()
        listener.say(type="capture", action="start", consent=consent, name="x")
        assert (await next_error(listener))["code"] == "insufficient_scope"


@pytest.mark.timeout(90)
async def test_a_browsers_microphone_becomes_a_voice(
    stack: RunningStack, tenant: Tenant, consent: str, tmp_path: Path
) -> None:
    """What getUserMedia gives goes over WebRTC and is enrolled."""

    def capture_there() -> dict[str, Any]:
        with open_browser(RECORDING, tmp_path / "profile", again=True) as chrome:
            chrome.get(f"{stack.relay_url}/v1/openapi.json")
            script = (ROOT / "tests" / "browser_capture.js").read_text()
            told: dict[str, Any] = chrome.execute_async_script(script, "/v1/whep", tenant.key, consent, 8)
            return told

    captured = await asyncio.to_thread(capture_there)
    assert captured["type"] == "captured" and captured["state"] == "ready", captured
    assert 7.5 < captured["seconds"] < 8.5
