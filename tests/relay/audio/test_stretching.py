"""Another speed, the same pitch."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from relay.audio.formats import parse_format
from relay.audio.stretching import Stretcher
from tests.relay.audio.listening import (
    CONTAINERS,
    PIECE,
    decode,
    encode,
    expect,
    make_tone,
    make_voice,
    measure_likeness,
)

SPEEDS = [0.25, 0.3, 0.5, 0.7, 0.9, 1.1, 1.5, 2.0, 2.5, 3.0, 4.0]


@pytest.mark.parametrize("speed", SPEEDS)
def test_pitch_stays(speed: float) -> None:
    """A tone of 440 Hz is one of 440 Hz at any speed, as loud as before."""
    stretched = _stretch(make_tone(440, 48_000), speed)
    middle = stretched[len(stretched) // 8 : -len(stretched) // 8]
    spectrum = np.abs(np.fft.rfft(middle * np.hanning(len(middle))))
    assert np.argmax(spectrum) * 24_000 / len(middle) == pytest.approx(440, abs=max(3.0, 24_000 / len(middle)))
    assert np.sqrt(np.mean(middle**2)) == pytest.approx(8000 / math.sqrt(2), rel=0.05)


@pytest.mark.parametrize("speed", SPEEDS)
def test_time_moves(speed: float) -> None:
    """What was said at one moment is said at that moment divided by the speed: beginning, middle and end."""
    voice = make_tone(440, 48_000)
    voice[12_000:36_000] = 0
    stretched = _stretch(voice, speed)
    loud = np.abs(stretched) > 2000
    silent = np.flatnonzero(~np.convolve(loud, np.ones(200), "same").astype(bool))
    quiet = silent[(silent > 6000 / speed) & (silent < 42_000 / speed)]
    assert quiet[0] * speed / 24_000 == pytest.approx(0.5, abs=0.08 * max(1, speed))
    assert quiet[-1] * speed / 24_000 == pytest.approx(1.5, abs=0.08 * max(1, speed))
    assert np.flatnonzero(loud)[-1] > (48_000 - 1500) / speed


@settings(max_examples=60, deadline=None)
@given(
    speed=st.floats(0.25, 4.0).filter(lambda speed: speed != 1.0),
    samples=st.integers(0, 12_000),
    sizes=st.lists(st.integers(1, PIECE), min_size=1, max_size=20),
)
def test_length_and_cutting(speed: float, samples: int, sizes: list[int]) -> None:
    """n samples become ceil(n / speed), the same ones in whatever pieces they came."""
    voice = make_voice(samples)
    whole = encode("pcm_24000", voice, speed=speed)
    assert len(whole) == 2 * math.ceil(samples / speed)
    assert encode("pcm_24000", voice, sizes, speed=speed) == whole


def test_normal_speed() -> None:
    """Speed 1 adds nothing and takes nothing away."""
    voice = make_voice(5000)
    assert encode("pcm_24000", voice, speed=1.0) == voice.tobytes()


@pytest.mark.parametrize(("speed", "within_ms"), [(0.5, 50), (0.9, 60), (1.2, 60), (2.0, 90)])
def test_little_is_held_back(speed: float, within_ms: int) -> None:
    """From the first piece on, what has been said lags what was given by at most these milliseconds of speech."""
    stretcher, taken, told = Stretcher(24_000, speed), 0, 0.0
    for _ in range(8):
        told += len(stretcher.push(make_voice(PIECE))) * speed
        taken += PIECE
        assert (taken - told) / 24 <= within_ms


@pytest.mark.parametrize("name", ["mp3_44100_64", "opus_48000_64", "aac_44100_64", "flac_16000"])
@pytest.mark.parametrize("speed", [0.4, 1.7])
def test_with_codecs(name: str, speed: float) -> None:
    """A codec gets the stretched speech and nothing else."""
    format, voice = parse_format(name), make_voice(30_000)
    _, heard = decode(encode(name, voice, speed=speed), container=CONTAINERS[format.codec])
    meant = expect(format, voice, speed=speed)
    assert len(meant) == math.ceil(math.ceil(30_000 / speed) * format.sample_rate / 24_000)
    lead = {"mp3": 1105, "aac": 1024}.get(name.split("_")[0], 0)
    assert measure_likeness(heard[lead:], meant) > 9


def _stretch(samples: NDArray[np.int16], speed: float) -> NDArray[np.float64]:
    return np.frombuffer(encode("pcm_24000", samples, speed=speed), "<i2").astype(np.float64)
