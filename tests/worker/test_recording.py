"""From an uploaded file's bytes to a reference recording, through the real decoder."""

from __future__ import annotations

import io

import numpy as np
import pytest
import soundfile

from tests.worker.recordings import KINDS, MAX_BYTES, RATE, sample, silence, voice, write
from worker.enrolment.decoding import decode
from worker.enrolment.gathering import SAMPLE_RATE
from worker.enrolment.recording import MAX_SPEECH_S, Recording, read_recording, to_flac
from worker.enrolment.stages import Stage


def read(data: bytes) -> Recording:
    return read_recording(data, max_bytes=MAX_BYTES)


@pytest.mark.parametrize(("kind", "subtype"), KINDS)
def test_reads_the_kinds_that_are_taken(kind: str, subtype: str) -> None:
    """WAV, FLAC, OGG (Vorbis, Opus) and MP3 become float32 mono at 16 kHz of the same length."""
    recording = read(sample(kind, subtype))
    assert recording.source_format == f"{kind}/{subtype}"
    assert recording.samples.dtype == np.float32
    assert recording.samples.shape == (round(recording.duration_s * SAMPLE_RATE),)
    assert recording.duration_s == pytest.approx(4, abs=0.1)
    assert np.abs(recording.samples).max() == pytest.approx(0.3, rel=0.15)


def test_gives_the_same_samples_again() -> None:
    """The same bytes give the same recording, bit for bit, stored file included."""
    first, again = read(sample("OGG", "OPUS")), read(sample("OGG", "OPUS"))
    assert first.samples.tobytes() == again.samples.tobytes()
    assert to_flac(first.samples) == to_flac(again.samples)


@pytest.mark.parametrize("rate", [8_000, 11_025, 16_000, 44_100, 48_000, 96_000, 192_000])
def test_keeps_pitch_and_length_at_every_sample_rate(rate: int) -> None:
    """Whatever the rate, the recording lasts as long, and a tone has its pitch."""
    assert read(write(voice(4, rate), "FLAC", rate=rate)).duration_s == pytest.approx(4, abs=0.1)
    tone = 0.3 * np.sin(2 * np.pi * 440 * np.arange(4 * rate) / rate)
    samples = decode(write(tone, "FLAC", rate=rate)).samples
    assert len(samples) / SAMPLE_RATE == pytest.approx(4, abs=0.01)
    assert np.abs(np.fft.rfft(samples)).argmax() * SAMPLE_RATE / len(samples) == pytest.approx(440, abs=1)


@pytest.mark.parametrize("channels", [1, 2, 3, 6, 8])
def test_mixes_every_channel(channels: int) -> None:
    """A voice on any one channel of several is in the mono recording."""
    wave = np.zeros((4 * RATE, channels), np.float32)
    wave[:, -1] = voice(4)
    assert np.abs(read(write(wave)).samples).max() == pytest.approx(0.3 / channels, rel=0.1)


def test_keeps_a_voice_whose_channels_cancel() -> None:
    """Two channels of opposite phase are not taken for silence."""
    wave = np.stack([voice(4), -voice(4)], axis=1)
    assert np.abs(read(write(wave)).samples).max() == pytest.approx(0.3, rel=0.1)


@pytest.mark.parametrize("offset", [-0.4, 0.25])
def test_removes_a_constant_offset(offset: float) -> None:
    """A constant offset is gone, and what it adds at the edges is not taken for speech."""
    wave = np.concatenate([silence(1), voice(4), silence(1)]) + np.float32(offset)
    recording = read(write(wave))
    assert abs(float(recording.samples.mean())) < 5e-3
    assert recording.duration_s == pytest.approx(0.15 + 4 + 0.15, abs=0.1)


def test_trims_silence_and_shortens_pauses() -> None:
    """Silence around speech goes but for 150 ms, and a pause inside keeps 0.6 s at the most."""
    parts = [silence(2), voice(2), silence(3), voice(2), silence(0.5), voice(2), silence(1)]
    hiss = 1e-3 * np.random.default_rng(3).standard_normal(sum(map(len, parts))).astype(np.float32)
    recording = read(write(np.concatenate(parts) + hiss))
    assert recording.duration_s == pytest.approx(0.15 + 2 + 0.6 + 2 + 0.5 + 2 + 0.15, abs=0.2)
    edge = SAMPLE_RATE // 20
    assert np.abs(recording.samples[:edge]).max() < 0.01
    assert np.abs(recording.samples[-edge:]).max() < 0.01


def test_does_not_take_a_click_for_speech() -> None:
    """A click in the silence before speech does not keep that silence."""
    wave = np.concatenate([silence(3), voice(4)])
    wave[RATE : RATE + 200] = 0.3
    assert read(write(wave)).duration_s == pytest.approx(4.1, abs=0.1)


def test_keeps_the_first_half_minute() -> None:
    """Of a longer recording the first 30 s of speech are kept."""
    assert read(write(voice(40), "OGG")).duration_s == MAX_SPEECH_S


def test_brings_floats_of_another_scale_within_full_scale() -> None:
    """A float file scaled like 16 bit integers is a recording like any other."""
    samples = read(write(voice(4) * 32_768, "WAV", "FLOAT")).samples
    assert np.abs(samples).max() == pytest.approx(1)


def test_stores_flac_of_16_bit() -> None:
    """The stored file is FLAC, mono, 16 bit, at 16 kHz, and differs from the samples by its rounding alone."""
    samples = read(sample("WAV", "FLOAT")).samples
    with soundfile.SoundFile(io.BytesIO(to_flac(samples))) as file:
        assert (file.format, file.subtype, file.samplerate, file.channels) == ("FLAC", "PCM_16", SAMPLE_RATE, 1)
        assert np.abs(file.read(dtype="float32") - samples).max() < 2**-14
    loud, _ = soundfile.read(io.BytesIO(to_flac(np.array([2, -2, 0], np.float32))))
    assert loud.tolist() == pytest.approx([1, -1, 0], abs=1e-4)


def test_takes_a_soft_voice() -> None:
    """A voice 50 dB below full scale is found as well as a loud one."""
    assert read(write(voice(4, level=0.004), "WAV", "FLOAT")).duration_s == pytest.approx(4, abs=0.15)


def test_reports_its_stages() -> None:
    """Whoever waits is told when decoding and when examining begins."""
    stages: list[Stage] = []
    read_recording(sample("WAV", "PCM_16"), max_bytes=MAX_BYTES, report=stages.append)
    assert stages == [Stage.DECODING, Stage.EXAMINING]


def test_says_how_good_it_is() -> None:
    """Noise, a telephone's band and few words lower the quality, each by its part."""
    good = read(write(voice(12))).quality
    narrow = read(write(voice(12, 8_000), rate=8_000)).quality
    short = read(write(voice(4))).quality
    assert good.score > 95
    assert narrow.bandwidth_hz < 4_300 and narrow.score == pytest.approx(
        good.score - 20 * (1 - narrow.bandwidth), abs=3
    )
    assert short.score == pytest.approx(good.score - 25 * (1 - short.duration), abs=3)


def test_shows_no_samples() -> None:
    """A recording that is printed by mistake shows its length, its format and its quality alone."""
    data = sample("WAV", "PCM_16")
    for shown in (repr(read(data)), repr(decode(data))):
        assert "array" not in shown
        assert "WAV/PCM_16" in shown
