"""The log-mel that synthesizer and vocoder share."""

import numpy as np
import pytest

from worker.sv2tts.envelope import KNOTS, bins_to_knots, knot_frequencies, knots_to_bins
from worker.sv2tts.mel import (
    FLOOR,
    HOP_LENGTH,
    N_MELS,
    SAMPLE_RATE,
    Floats,
    filter_bank,
    hz_to_mel,
    log_mel,
    mel_to_hz,
)


def tone(hertz: float, frames: int) -> Floats:
    time = np.arange(frames * HOP_LENGTH) / SAMPLE_RATE
    return np.sin(2 * np.pi * hertz * time).astype(np.float32)


@pytest.mark.parametrize("samples", [0, 239, 240, 4801])
def test_frames_stand_for_whole_hops(samples: int) -> None:
    """N samples have N // 240 frames of 80 bands."""
    assert log_mel(np.zeros(samples, np.float32)).shape == (samples // HOP_LENGTH, N_MELS)


def test_silence_is_the_floor() -> None:
    """Silence is ln(1e-5) in every band, not minus infinity."""
    assert np.allclose(log_mel(np.zeros(2400, np.float32)), np.log(FLOOR))


@pytest.mark.parametrize("hertz", [120.0, 440.0, 3000.0, 9000.0])
def test_a_tone_lies_in_the_band_around_its_frequency(hertz: float) -> None:
    """The strongest band of a tone has its centre within one band of the tone's frequency."""
    edges = mel_to_hz(np.linspace(0, hz_to_mel(np.array([12000.0]))[0], N_MELS + 2))
    strongest = int(log_mel(tone(hertz, 20))[10].argmax())
    assert edges[strongest] - 1 <= hertz <= edges[strongest + 2] + 1


def test_a_frame_is_centred_on_its_sample() -> None:
    """A click at sample 240 t is loudest in frame t and as loud in the frames before and after."""
    click = np.zeros(4800, np.float32)
    click[2400] = 1
    level = log_mel(click).mean(axis=1)
    assert int(level.argmax()) == 10
    assert level[9] == pytest.approx(level[11], abs=1e-3)


def test_filters_have_equal_area() -> None:
    """Slaney's normalisation: every filter of more than a few bins has unit area over frequency."""
    bank = filter_bank(SAMPLE_RATE, 1024, N_MELS, 0.0, 12000.0)
    assert np.allclose(bank[:, 20:].sum(axis=0) * SAMPLE_RATE / 1024, 1, atol=0.05)


def test_the_mel_scale_is_linear_below_1_khz_and_invertible() -> None:
    """15 mels are 1 kHz and 42 mels 6.4 kHz, and the way back leads to the same frequency."""
    hertz = np.array([0.0, 500.0, 1000.0, 6400.0, 12000.0])
    assert np.allclose(hz_to_mel(hertz)[[1, 2, 3]], [7.5, 15, 42])
    assert np.allclose(mel_to_hz(hz_to_mel(hertz)), hertz)


@pytest.mark.parametrize("bins", [257, 601])
def test_an_envelope_that_is_linear_between_knots_survives_them(bins: int) -> None:
    """Knots to bins and back changes a smooth envelope by less than 0.1 neper."""
    envelope = np.sin(np.arange(KNOTS) / 9).astype(np.float32)
    again = envelope @ knots_to_bins(bins) @ bins_to_knots(bins)
    assert knot_frequencies()[-1] == pytest.approx(12000, abs=1)
    assert np.abs(again - envelope).max() < 0.1
