"""The figures of a recording: levels, noise, bandwidth, stretches of speech and the score."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.worker.recordings import voice
from worker.enrolment.acoustics import (
    MOST_SNR_DB,
    SILENCE_DB,
    measure_bandwidth,
    measure_levels,
    measure_loudness,
    measure_snr,
    measure_sound,
)
from worker.enrolment.calibration.sounds import SOUNDS
from worker.enrolment.gathering import SAMPLE_RATE, Samples
from worker.enrolment.quality import Quality
from worker.enrolment.speech_bounds import MARGIN, Span, cut_speech, find_speech, join_speech, merge_spans
from worker.enrolment.voice_activity import CHUNK, detect_speech

GOOD = Quality(snr_db=30, speech_s=10, flat_share=0, bandwidth_hz=8000)
probabilities = st.lists(st.floats(0, 1, width=32), max_size=200).map(lambda found: np.array(found, np.float32))


def with_pauses() -> tuple[Samples, float]:
    """Speech with a second before, between and after, and its power while it lasts."""
    spoken, pause = voice(3, SAMPLE_RATE), np.zeros(SAMPLE_RATE, np.float32)
    return np.concatenate([pause, spoken, pause, spoken, pause]), float(np.mean(np.square(spoken)))


def add_noise(speech: Samples, power: float, ratio_db: float) -> Samples:
    noise = SOUNDS["white"](len(speech), np.random.default_rng(5))
    scale = np.sqrt(power / 10 ** (ratio_db / 10) / np.mean(np.square(noise)))
    return np.asarray(speech + noise * scale, np.float32)


@pytest.mark.parametrize("ratio_db", [25, 15, 10, 5, 0])
def test_noise_is_measured(ratio_db: int) -> None:
    """White noise of a known level is measured within 2 dB."""
    speech, power = with_pauses()
    noise = SOUNDS["white"](len(speech), np.random.default_rng(5)) * np.float32(
        10 * (power / 10 ** (ratio_db / 10)) ** 0.5
    )
    mixed = np.asarray(speech + noise, np.float32)
    assert measure_snr(mixed, detect_speech(mixed)) == pytest.approx(ratio_db, abs=2)


@pytest.mark.parametrize("ratio_db", [20, 10, 0])
def test_noise_is_measured_without_pauses(ratio_db: int) -> None:
    """Where nobody ever pauses, noise is still measured, within 4 dB."""
    speech = voice(8, SAMPLE_RATE)
    power = float(np.mean(np.square(speech)))
    noise = SOUNDS["white"](len(speech), np.random.default_rng(6)) * np.float32(
        10 * (power / 10 ** (ratio_db / 10)) ** 0.5
    )
    mixed = np.asarray(speech + noise, np.float32)
    always = np.ones(-(-len(mixed) // CHUNK), np.float32)
    assert measure_snr(mixed, always) == pytest.approx(ratio_db, abs=4)


def test_no_noise_is_the_best_there_is() -> None:
    """Digital silence between words is 60 dB, and no speech at all is none."""
    speech, _ = with_pauses()
    assert measure_snr(speech, detect_speech(speech)) == MOST_SNR_DB
    assert measure_snr(speech, np.zeros(-(-len(speech) // CHUNK), np.float32)) == 0


@pytest.mark.parametrize(("rate", "least", "most"), [(8_000, 3_400, 4_250), (16_000, 7_000, 8_000)])
def test_the_band_is_measured(rate: int, least: int, most: int) -> None:
    """A telephone's band ends at 4 kHz, a whole one at 8."""
    speech = np.asarray(soxr.resample(voice(5, rate), rate, SAMPLE_RATE), np.float32)
    assert least <= measure_bandwidth(speech, detect_speech(speech)) <= most


def test_levels_are_decibels_of_full_scale() -> None:
    """A sine of full scale has -3 dB, and what is silent has no sound."""
    sine = np.sin(2 * np.pi * 440 * np.arange(SAMPLE_RATE) / SAMPLE_RATE).astype(np.float32)
    levels = measure_levels(sine)
    assert np.median(levels) == pytest.approx(-3.01, abs=0.05)
    assert measure_loudness(levels) == pytest.approx(-3.01, abs=0.1)
    assert measure_sound(levels) == pytest.approx(1, abs=0.03)
    assert measure_loudness(measure_levels(sine * np.float32(1e-4))) == SILENCE_DB
    assert measure_sound(measure_levels(sine * np.float32(1e-4))) == 0


def test_speech_has_hysteresis() -> None:
    """Speech begins when it is likely, goes on while it is not unlikely, and a blink is none."""
    found = np.array([0.4, 0.6, 0.4, 0.4, 0.4, 0.3] + [0] * 10 + [0.9] + [0] * 10, np.float32)
    assert find_speech(found) == [Span(CHUNK, 5 * CHUNK)]


@given(probabilities)
@settings(deadline=None, derandomize=True)
def test_stretches_are_in_order(found: NDArray[np.float32]) -> None:
    """Stretches of speech are in order, apart, inside the recording, and as long as a syllable."""
    spans = find_speech(found)
    samples = np.ones(len(found) * CHUNK, np.float32)
    assert all(0 <= span.start < span.end <= len(samples) and span.length >= SAMPLE_RATE // 10 for span in spans)
    assert all(after.start - before.end >= SAMPLE_RATE // 5 for before, after in pairwise(spans))
    spoken = sum(span.length for span in spans)
    assert len(cut_speech(samples, spans)) <= spoken + 2 * CHUNK * len(spans)
    assert len(join_speech(samples, spans)) <= len(samples)
    assert len(join_speech(samples, spans)) >= min(spoken - 80 * len(spans), len(samples))


def test_joining_keeps_the_margins() -> None:
    """Around a single stretch 150 ms stay."""
    assert len(join_speech(np.ones(4 * SAMPLE_RATE, np.float32), [Span(16_000, 32_000)])) == 16_000 + 2 * MARGIN
    assert merge_spans([Span(0, 10), Span(15, 20), Span(30, 40)], 6) == [Span(0, 20), Span(30, 40)]


def test_the_score_is_a_weighted_mean() -> None:
    """The best recording has 100, the worst that is taken none, and each part its weight."""
    assert GOOD.score == 100
    assert Quality(snr_db=12, speech_s=3, flat_share=0.01, bandwidth_hz=3_400).score == 0
    assert Quality(snr_db=12, speech_s=10, flat_share=0, bandwidth_hz=8000).score == 60
    assert Quality(snr_db=30, speech_s=3, flat_share=0, bandwidth_hz=8000).score == 75
    assert Quality(snr_db=30, speech_s=10, flat_share=0, bandwidth_hz=3_400).score == 80
    assert Quality(snr_db=30, speech_s=10, flat_share=0.01, bandwidth_hz=8000).score == 85
    assert Quality(snr_db=21, speech_s=6.5, flat_share=0.005, bandwidth_hz=5_450).score == 50
