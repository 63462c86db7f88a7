"""The simulated player of the benchmark."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timbrelay.benchmark.playback import OWED_AFTER_S, TOLERANCE_S, Playback

CHUNK_S = 0.08


def test_audio_in_time_plays_through() -> None:
    """Chunks that come no later than the player needs them cause no underrun."""
    playback = Playback()
    for number in range(10):
        playback.push(5.0 + number * CHUNK_S, CHUNK_S)
    assert (playback.underruns, playback.silence_s) == (0, 0.0)
    assert playback.left(5.0 + 9 * CHUNK_S) == pytest.approx(CHUNK_S)


def test_waiting_for_the_first_chunk_is_no_underrun() -> None:
    """The player starts with the first chunk, however late that is."""
    playback = Playback()
    assert playback.left(100.0) == 0.0
    playback.push(100.0, CHUNK_S)
    assert playback.underruns == 0


def test_a_late_chunk_is_an_underrun_of_that_length() -> None:
    """A chunk that comes after the player ran dry counts once, with the silence until it came."""
    playback = Playback()
    playback.push(0.0, CHUNK_S)
    playback.push(0.2, CHUNK_S)
    assert playback.underruns == 1
    assert playback.silence_s == pytest.approx(0.12)
    assert playback.left(0.2) == pytest.approx(CHUNK_S)


def test_what_came_early_makes_up_for_what_is_late() -> None:
    """Audio that arrived ahead of time is played while the next chunk is late."""
    playback = Playback()
    for _ in range(5):
        playback.push(0.0, CHUNK_S)
    playback.push(0.39, CHUNK_S)
    assert playback.underruns == 0
    assert playback.left(0.39) == pytest.approx(6 * CHUNK_S - 0.39)


def test_a_clocks_unevenness_is_no_underrun() -> None:
    """A gap that nobody can hear does not count."""
    playback = Playback()
    playback.push(0.0, CHUNK_S)
    playback.push(CHUNK_S + TOLERANCE_S / 2, CHUNK_S)
    assert playback.underruns == 0


@given(st.lists(st.tuples(st.floats(0.0, 0.5), st.floats(0.001, 0.2)), min_size=1, max_size=50))
def test_time_adds_up(arrivals: list[tuple[float, float]]) -> None:
    """From the first chunk to the end of playing there is audio, silence, and nothing else."""
    playback, now = Playback(), 0.0
    for gap, audio in arrivals:
        now += gap
        playback.push(now, audio)
    first = arrivals[0][0]
    total = now + playback.left(now) - first
    audio = sum(length for _, length in arrivals)
    inaudible = TOLERANCE_S * len(arrivals)
    assert audio + playback.silence_s - 1e-9 <= total <= audio + playback.silence_s + inaudible + 1e-9


def test_a_sentence_is_owed_some_time_after_its_text() -> None:
    """Silence that the language model made is no underrun; what comes later than owed is one, from then on."""
    playback = Playback()
    playback.push(0.0, CHUNK_S)
    playback.push(5.0, CHUNK_S, complete_at=5.0 - OWED_AFTER_S)
    assert playback.underruns == 0
    playback.push(10.0, CHUNK_S, complete_at=9.5)
    assert playback.underruns == 1
    assert playback.silence_s == pytest.approx(0.5 - OWED_AFTER_S)
