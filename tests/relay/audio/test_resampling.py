"""Another rate, the same sound."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from relay.audio.formats import PCM_RATES
from relay.audio.resampling import Resampler
from tests.relay.audio.listening import PIECE, encode, make_tone

OTHER_RATES = [rate for rate in PCM_RATES if rate != 24000]


@pytest.mark.parametrize("rate", PCM_RATES)
def test_tones_stay(rate: int) -> None:
    """A tone of 1 kHz is one of 1 kHz at any rate, as loud as before, with nothing beside it above -80 dB."""
    tone = _resample(make_tone(1000, 48_000), rate)
    spectrum = _measure_spectrum(tone)
    peak = int(np.argmax(spectrum))
    assert peak * rate / len(tone) == pytest.approx(1000, abs=rate / len(tone))
    assert np.sqrt(np.mean(tone[rate // 4 : -rate // 4] ** 2)) == pytest.approx(8000 / math.sqrt(2), rel=0.005)
    beside = np.concatenate([spectrum[: peak - 8], spectrum[peak + 9 :]])
    assert 20 * np.log10(np.max(beside) / spectrum[peak]) < -80


@pytest.mark.parametrize(
    ("rate", "hertz"),
    [
        (8000, 4400),
        (8000, 5000),
        (8000, 7000),
        (8000, 10_000),
        (8000, 11_500),
        (16000, 9000),
        (16000, 10_000),
        (22050, 11_500),
    ],
)
def test_no_alias(rate: int, hertz: float) -> None:
    """What is too high for a rate does not come back as another tone: it is below -60 dB."""
    tone = _resample(make_tone(hertz, 48_000, loud=30_000), rate)
    middle = tone[len(tone) // 4 : -len(tone) // 4]
    assert 20 * np.log10(np.sqrt(np.mean(middle**2)) / (30_000 / math.sqrt(2)) + 1e-9) < -60


@pytest.mark.parametrize("rate", [32000, 44100, 48000])
def test_no_image(rate: int) -> None:
    """A higher rate adds nothing above 12.5 kHz, where the source has nothing."""
    tone = _resample(make_tone(9000, 48_000), rate)
    spectrum = _measure_spectrum(tone)
    above = spectrum[int(12_500 * len(tone) / rate) :]
    assert 20 * np.log10(np.max(above) / np.max(spectrum)) < -80


@settings(max_examples=60, deadline=None)
@given(rate=st.sampled_from(OTHER_RATES), pieces=st.lists(st.integers(0, PIECE), max_size=20))
def test_length(rate: int, pieces: list[int]) -> None:
    """n samples become ceil(n * rate / 24000), and never more than that at any time before the end."""
    resampler, taken, given_back = Resampler(24000, rate), 0, 0
    for size in pieces:
        given_back += len(resampler.push(np.full(size, 99, np.int16)))
        taken += size
        assert given_back <= math.ceil(taken * rate / 24000)
    given_back += len(resampler.finish())
    assert given_back == math.ceil(taken * rate / 24000)


@pytest.mark.parametrize("rate", OTHER_RATES)
def test_little_is_held_back(rate: int) -> None:
    """After each piece all but the last 10 ms are out, 25 at 8 kHz, and it never gets more."""
    resampler, out = Resampler(24000, rate), 0.0
    for number in range(1, 30):
        out += 1000 * len(resampler.push(make_tone(300, PIECE))) / rate
        assert 80 * number - out < (25.1 if rate == 8000 else 10.1)


@pytest.mark.parametrize("rate", OTHER_RATES)
def test_no_drift(rate: int) -> None:
    """After a minute a tone is where it was in the first second, to a microsecond, and never off by over 0.25 ms."""
    tone = _resample(make_tone(100, 60 * 24_000), rate)
    early, late = (_measure_shift(tone, second, rate) for second in (1, 58))
    assert late == pytest.approx(early, abs=1e-6)
    assert abs(early) < 0.25e-3


@pytest.mark.parametrize("rate", OTHER_RATES)
def test_full_scale(rate: int) -> None:
    """Samples that would overshoot 16 bits stop there instead of wrapping around."""
    square = np.where(make_tone(100, 24_000) >= 0, 32767, -32768).astype("<i2")
    resampled = _resample(square, rate)
    assert resampled.max() == 32767
    assert resampled.min() == -32768
    first_half = resampled[rate // 1000 * 2 : rate // 1000 * 4]
    assert np.all(first_half > 20_000)


def _resample(samples: NDArray[np.int16], rate: int) -> NDArray[np.float64]:
    return np.frombuffer(encode(f"pcm_{rate}", samples), "<i2").astype(np.float64)


def _measure_shift(tone: NDArray[np.float64], second: int, rate: int) -> float:
    """Seconds by which a tone of 100 Hz is late, over one second of it."""
    places = np.arange(second * rate, (second + 1) * rate)
    phase = np.angle(np.sum(tone[places] * np.exp(-2j * np.pi * 100 * places / rate)))
    return float(-(phase + np.pi / 2) / (2 * np.pi * 100))


def _measure_spectrum(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.abs(np.fft.rfft(samples * np.blackman(len(samples))))
