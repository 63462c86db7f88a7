"""relay.webrtc.track: what aiortc is handed, by a clock of the test's own."""

from __future__ import annotations

import asyncio
from fractions import Fraction

import pytest
from aiortc.mediastreams import MediaStreamError

from relay.webrtc.floor import Floor, Played, Playing
from relay.webrtc.pacing import FRAME_SAMPLES
from relay.webrtc.track import SpeechTrack
from tests.relay.conftest import FakeClock
from tests.relay.webrtc.test_floor import chunk, tone


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """Sleeping moves it."""
    clock = FakeClock()

    async def sleep(seconds: float) -> None:
        clock.now += seconds

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return clock


async def test_packets_come_every_20_ms_and_their_times_never_restart(clock: FakeClock) -> None:
    """Silence, one utterance, silence, another: each packet is 20 ms after the one before, on the wall and in pts."""
    floor, notes = Floor(), list[Playing | Played]()
    track = SpeechTrack(floor, clock, notes.append)
    packets, times = [], []
    for index in range(200):
        if index in (20, 120):
            number = index
            for part in range(5):
                floor.add(chunk(number, tone(440), last=part == 4))
            floor.end(f"c{number}")
        packets.append(await track.recv())
        times.append(clock.now)
    assert [packet.pts for packet in packets] == [index * FRAME_SAMPLES for index in range(200)]
    assert {packet.time_base for packet in packets} == {Fraction(1, 48_000)}
    assert times == pytest.approx([100.0 + 0.02 * index for index in range(200)])
    assert all(0 < packet.size < 200 for packet in packets)
    assert notes == [Playing("c20", 20, 0.0), Played("c20", 20), Playing("c120", 120, 0.0), Played("c120", 120)]


async def test_an_utterance_of_20_ms_is_heard(clock: FakeClock) -> None:
    """The shortest there is has its packet, which is larger than one of silence."""
    floor = Floor()
    track = SpeechTrack(floor, clock, lambda _: None)
    silence = [(await track.recv()).size for _ in range(50)]
    floor.add(chunk(1, tone(440, 480), last=True))
    assert (await track.recv()).size > 2 * silence[-1]


async def test_a_stopped_track_has_no_more(clock: FakeClock) -> None:
    """aiortc is told so by its own error."""
    track = SpeechTrack(Floor(), clock, lambda _: None)
    track.stop()
    with pytest.raises(MediaStreamError):
        await track.recv()
