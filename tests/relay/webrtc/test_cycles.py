"""Peers that come and go leave nothing behind (cases ML4 and ML5)."""

from __future__ import annotations

import asyncio
import gc
import os
import weakref
from dataclasses import dataclass
from pathlib import Path

import httpx2
import numpy as np
import pytest
from aiortc import RTCSessionDescription

from relay.clock import SystemClock
from relay.webrtc.floor import Floor
from relay.webrtc.link import Link
from relay.webrtc.memory import EVERY, Giver
from relay.webrtc.terms import WebrtcTerms
from relay.webrtc.track import SpeechTrack
from tests.conftest import MakeTenant, MakeVoice, RunningStack, wait_until
from tests.relay.conftest import EMBEDDING
from tests.relay.webrtc.listening import connect_whep, make_listener, make_offer
from tests.relay.webrtc.test_microphone import hear_recording
from tests.relay.webrtc.test_whep import peers_of

CYCLES = int(os.environ.get("CYCLES", "75"))
"""The figures of docs/webrtc.md are of 500."""
MEASURE_EVERY = 25
PEERS_A_TENANT = 100
"""So that nobody asks too much in a minute."""
MOST_KIB_A_CYCLE = 8
MOST_FILES = 6
MOST_THREADS = 12
"""The loop's own, what `to_thread` keeps, and a decoder or two of microphones that are just closing."""


@dataclass(frozen=True, slots=True)
class Use:
    """What a process has of its machine."""

    kib: int
    files: int
    threads: int

    @classmethod
    def of(cls, pid: int) -> Use:
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
        )
        files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        return cls(int(status["VmRSS"].split()[0]), files, int(status["Threads"]))


@pytest.mark.timeout(600)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc to look into")
async def test_peers_that_come_and_go_leave_nothing(
    stack: RunningStack, http: httpx2.AsyncClient, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """With and without speech, with a microphone or not, ended by either side: memory, files and threads stay."""
    pid = stack.processes["relay"].pid
    uses = []
    for number in range(CYCLES + 2 * MEASURE_EVERY):
        if number % PEERS_A_TENANT == 0:
            tenant = await make_tenant(f"tenant-{number}")
            voice = await make_voice(tenant.id, embedding=EMBEDDING)
            http.headers["Authorization"] = f"Bearer {tenant.key}"
        microphone = hear_recording() if number % 3 == 0 else None
        async with connect_whep(http, microphone=microphone, voice=voice) as listener:
            await listener.until_connected()
            listener.open(voice)
            listener.say(type="text", context="c", text="Hello.")
            if number % 2:
                listener.say(type="end", context="c")
                await listener.until("words")
                await http.delete(listener.session)
        if number % MEASURE_EVERY == MEASURE_EVERY - 1:
            await asyncio.to_thread(wait_until, lambda: peers_of(stack) == 0)
            uses.append(Use.of(pid))
    print(*uses, sep="\n")
    # The first ones have brought in the libraries, and filled what is kept for later.
    uses = uses[2:]
    slope = np.polyfit(np.arange(len(uses)) * MEASURE_EVERY, [use.kib for use in uses], 1)[0]
    assert slope < MOST_KIB_A_CYCLE, uses
    assert max(use.files for use in uses) <= uses[0].files + MOST_FILES, uses
    assert max(use.threads for use in uses) <= MOST_THREADS, uses


class _Nobody:
    """An owner that wants to know nothing."""

    def connected(self) -> None: ...

    def disconnected(self, *, failed: bool) -> None: ...

    def opened(self, channel: object) -> None: ...

    def said(self, message: object) -> None: ...

    def heard(self, samples: object, pts: int) -> None: ...


class _Circle:
    """Holds itself."""

    def __init__(self) -> None:
        self.me = self


def test_circles_are_found_now_and_then() -> None:
    """Once for so many peers, whatever the garbage collector would have done by itself."""
    giver, circle = Giver(), weakref.ref(_Circle())
    gc.disable()
    try:
        for _ in range(EVERY - 1):
            giver.note_end()
        assert circle() is not None
        giver.note_end()
        assert circle() is None
    finally:
        gc.enable()


async def test_a_link_that_is_closed_has_no_task_left() -> None:
    """Whatever it was doing: being connected, hearing a microphone that nobody wants, speaking."""
    before = asyncio.all_tasks()
    for microphone in (None, hear_recording()):
        floor = Floor()
        link = Link(WebrtcTerms(loopback=True), [], SpeechTrack(floor, SystemClock(), lambda _: None), _Nobody())
        listener = make_listener(microphone=microphone)
        answer = await link.answer(await make_offer(listener))
        await listener.connection.setRemoteDescription(RTCSessionDescription(answer, "answer"))
        await listener.until_connected()
        await link.close()
        await listener.connection.close()
        for task in listener.tasks:
            task.cancel()
    async with asyncio.timeout(5):
        while asyncio.all_tasks() - before:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
