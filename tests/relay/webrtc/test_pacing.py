"""relay.webrtc.pacing."""

from __future__ import annotations

import random

import pytest

from relay.webrtc.pacing import CATCH_UP_S, FRAME_S, FRAME_SAMPLES, Pace


def test_frames_are_due_every_20_ms_whenever_they_are_asked_for() -> None:
    """The grid is absolute: being called late or early by some milliseconds does not add up."""
    pace, random_source, now = Pace(), random.Random(1), 50.0
    for index in range(3000):
        slot = pace.take(now)
        assert slot.due_at == pytest.approx(50.0 + index * FRAME_S)
        assert slot.pts == index * FRAME_SAMPLES
        now = slot.due_at + random_source.uniform(0, 0.015)


def test_a_short_stall_is_caught_up_with() -> None:
    """Frames that a busy moment has made late are sent at once, none is left out."""
    pace = Pace()
    for _ in range(10):
        pace.take(0.0)
    late = [pace.take(0.2 + CATCH_UP_S * 0.9) for _ in range(5)]
    assert [slot.pts // FRAME_SAMPLES for slot in late] == [10, 11, 12, 13, 14]


def test_a_long_stall_is_jumped_over() -> None:
    """What is later than the bound is not sent in a burst: time goes on from now, and never back."""
    pace = Pace()
    first = pace.take(0.0)
    after = pace.take(7.0)
    assert after.pts == pytest.approx(7.0 * 48_000, abs=FRAME_SAMPLES) and after.pts > first.pts
    assert after.due_at <= 7.0 < after.due_at + 2 * FRAME_S
    assert pace.take(7.0).pts == after.pts + FRAME_SAMPLES
