"""From an uploaded file's bytes to a reference recording, through the real decoder."""

from __future__ import annotations

import contextlib
import io
from functools import cache

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from worker.enrolment.recording import MAX_SPEECH_S, Recording, read_recording, to_flac
from worker.enrolment.speech_bounds import SAMPLE_RATE
from worker.errors import RecordingError

Wave = NDArray[np.float32]

RATE = 24_000
MAX_BYTES = 4 * 1024 * 1024
KINDS = [
    ("WAV", "PCM_16"),
    ("WAV", "PCM_U8"),
    ("WAV", "FLOAT"),
    ("WAVEX", "PCM_24"),
    ("RF64", "PCM_16"),
    ("FLAC", "PCM_24"),
    ("OGG", "VORBIS"),
    ("OGG", "OPUS"),
    ("MP3", "MPEG_LAYER_III"),
]
BEGINNINGS = [
    b"",
    b"RIFF\xff\xff\0\0WAVEfmt ",
    b"RF64\xff\xff\xff\xffWAVEds64",
    b"fLaC",
    b"OggS",
    b"ID3\4",
    b"\xff\xfb",
]
fuzzily = settings(max_examples=200, deadline=None, derandomize=True)


def voice(seconds: float, rate: int = RATE, level: float = 0.3) -> Wave:
    """Pulses at 120 Hz through three formants, swelling like syllables, over a little noise."""
    pulses = np.zeros(round(seconds * rate))
    pulses[:: rate // 120] = 1
    time = np.arange(rate // 20) / rate
    ring = sum(np.sin(2 * np.pi * formant * time) for formant in (700, 1200, 2600)) * np.exp(-60 * np.pi * time)
    swell = 0.6 + 0.4 * np.sin(8 * np.pi * np.arange(len(pulses)) / rate)
    wave = np.convolve(pulses, ring)[: len(pulses)] * swell
    wave += np.abs(wave).max() * 1e-3 * np.random.default_rng(7).standard_normal(len(wave))
    return np.asarray(wave / np.abs(wave).max() * level, np.float32)


def silence(seconds: float) -> Wave:
    return np.zeros(round(seconds * RATE), np.float32)


def write(wave: NDArray[np.generic], kind: str = "WAV", subtype: str | None = None, rate: int = RATE) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, wave, rate, format=kind, subtype=subtype)
    return file.getvalue()


@cache
def sample(kind: str, subtype: str) -> bytes:
    return write(voice(4), kind, subtype)


def read(data: bytes) -> Recording:
    return read_recording(data, max_bytes=MAX_BYTES)


def refuse(data: bytes, code: str) -> str:
    with pytest.raises(RecordingError) as caught:
        read(data)
    assert caught.value.code == code, caught.value.message
    return caught.value.message


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
    """Whatever the rate, the recording lasts as long and has its pitch of 120 Hz."""
    recording = read(write(voice(4, rate), "FLAC", rate=rate))
    assert recording.duration_s == pytest.approx(4, abs=0.1)
    period = rate // 120 * SAMPLE_RATE / rate
    middle = recording.samples[SAMPLE_RATE : 2 * SAMPLE_RATE].astype(np.float64)
    likeness = np.fft.irfft(np.square(np.abs(np.fft.rfft(middle, 2 * len(middle)))))
    assert 60 + int(likeness[60:200].argmax()) == pytest.approx(period, abs=1)


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
    assert recording.duration_s == pytest.approx(4.2, abs=0.1)


def test_trims_silence_and_shortens_pauses() -> None:
    """Silence around speech goes but for 100 ms, and a pause inside keeps 0.6 s at the most."""
    parts = [silence(2), voice(2), silence(3), voice(2), silence(0.5), voice(2), silence(1)]
    hiss = 1e-3 * np.random.default_rng(3).standard_normal(sum(map(len, parts))).astype(np.float32)
    recording = read(write(np.concatenate(parts) + hiss))
    assert recording.duration_s == pytest.approx(0.1 + 2 + 0.6 + 2 + 0.5 + 2 + 0.1, abs=0.2)
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


def test_refuses_a_recording_without_samples() -> None:
    """No bytes, or a header alone, is an empty recording."""
    refuse(b"", "recording_empty")
    refuse(write(silence(0)), "recording_empty")


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"\0\0\0\x20ftypM4A \0\0\0\0", "M4A"),
        (b"\0\0\0\x18ftypisom\0\0\0\0", "MP4"),
        (b"\x1a\x45\xdf\xa3\x9f\x42\x86", "WebM"),
        (b"%PDF-1.7\n", "PDF"),
        (b"\x89PNG\r\n\x1a\n", "PNG"),
        (b"PK\x03\x04\x14\0", "ZIP"),
        (b"RIFF\x10\0\0\0AVI LIST", "AVI"),
        (b"FORM\0\0\0\x20AIFFCOMM", "AIFF"),
        (b"\xff\xf1\x50\x80\x00\x1f\xfc", "AAC"),
        ("Hört, hört!\n".encode() * 900, "text"),
        (bytes(range(128, 256)), "does not begin like an audio file"),
        (b"OggS" + bytes(200), "damaged"),
        (b"RIFF\x24\0\0\0WAVE", "damaged"),
        (b"\xff\xfb\x90\x00" * 50, "damaged"),
    ],
)
def test_names_what_is_not_audio(data: bytes, name: str) -> None:
    """What is no recording is refused with what it looks like and what to send instead."""
    message = refuse(data, "recording_not_audio")
    assert name in message
    assert "WAV, FLAC, OGG" in message
    assert "BytesIO" not in message


def test_refuses_too_many_bytes() -> None:
    """A file over the limit is refused with both sizes."""
    with pytest.raises(RecordingError, match=r"0\.2 MiB, 0\.1 are taken") as caught:
        read_recording(sample("WAV", "PCM_16"), max_bytes=100_000)
    assert caught.value.code == "recording_too_large"


def test_refuses_hours_by_the_header() -> None:
    """A file of hours is refused by what its header says, without decoding it."""
    assert "7200 s" in refuse(write(np.zeros(7200 * 8000, np.int16), "FLAC", rate=8000), "recording_too_long")


def test_refuses_a_minute_and_more_although_the_header_is_silent() -> None:
    """A FLAC header that does not know its length does not let a long file through."""
    data = bytearray(write(np.tile(voice(7), 10), "FLAC"))
    data[21:26] = bytes([data[21] & 0xF0, 0, 0, 0, 0])
    refuse(bytes(data), "recording_too_long")


def test_reads_no_more_than_the_header_says() -> None:
    """A header that says less than there is decides; one of a stream that says everything does no harm."""
    data = bytearray(write(np.tile(voice(7), 10), "FLAC"))
    data[21:26] = (5 * RATE).to_bytes(5, "big") if not data[21] & 0xF0 else bytes([data[21] & 0xF0, 0, 1, 212, 192])
    assert read(bytes(data)).duration_s == pytest.approx(5, abs=0.1)
    streamed = sample("WAV", "PCM_16")
    size = streamed.index(b"data") + 4
    endless = streamed[:size] + b"\xff\xff\xff\xff" + streamed[size + 4 :]
    assert read(endless).duration_s == pytest.approx(4, abs=0.1)


@pytest.mark.parametrize("seconds", [0.01, 0.5, 2.5])
def test_refuses_too_little_speech(seconds: float) -> None:
    """Less than three seconds of speech are too few, however long the silence around them."""
    message = refuse(write(np.concatenate([silence(5), voice(seconds), silence(5)])), "recording_too_short")
    assert "5 to 10" in message


@pytest.mark.parametrize("level", [0, 1e-4])
def test_refuses_silence(level: float) -> None:
    """Digital silence, a constant, or a noise floor alone is silent, and the level is told."""
    noise = np.random.default_rng(1).standard_normal(5 * RATE) * level
    for offset in (0, 0.3):
        assert "dB" in refuse(write(noise + offset, "WAV", "FLOAT"), "recording_silent")


@pytest.mark.parametrize("gain", [1, 0.3])
@pytest.mark.parametrize("kind", ["WAV", "FLAC"])
def test_refuses_a_cut_off_wave(kind: str, gain: float) -> None:
    """Flat tops are found at full scale and below it, and in one channel of two."""
    flat = np.clip(voice(4) * 12, -1, 1) * np.float32(gain)
    assert "%" in refuse(write(flat, kind), "recording_clipped")
    assert "%" in refuse(write(np.stack([voice(4), flat], axis=1), kind), "recording_clipped")


@pytest.mark.parametrize("kind", ["MP3", "OGG"])
def test_refuses_a_cut_off_wave_from_a_lossy_codec(kind: str) -> None:
    """A codec that rounds the flat tops does not hide them."""
    refuse(write(np.clip(voice(4) * 12, -1, 1), kind), "recording_clipped")


@pytest.mark.parametrize(("kind", "subtype"), KINDS)
def test_takes_a_loud_voice_that_is_not_cut_off(kind: str, subtype: str) -> None:
    """A voice that reaches full scale without being cut off is taken."""
    assert read(write(voice(4, level=1.0), kind, subtype)).duration_s == pytest.approx(4, abs=0.1)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
def test_refuses_what_is_not_a_number(value: float) -> None:
    """One sample that is not a number, or too large to be one after resampling, is found."""
    wave = voice(4)
    wave[2 * RATE : 2 * RATE + 3] = value
    message = refuse(write(wave, "WAV", "FLOAT"), "recording_non_finite")
    assert "16 bit" in message


def test_refuses_rates_and_channels_that_no_voice_comes_in() -> None:
    """Too few samples a second, absurdly many, or more than eight channels are refused with the figure."""
    assert "4000" in refuse(write(voice(4), rate=4000), "recording_too_low_rate")
    assert "655350" in refuse(write(np.zeros(9999, np.int16), "FLAC", rate=655_350), "recording_not_audio")
    assert "9 channels" in refuse(write(np.zeros((9999, 9), np.int16)), "recording_too_many_channels")


@given(st.sampled_from(BEGINNINGS), st.binary(max_size=600))
@fuzzily
def test_survives_random_bytes(beginning: bytes, data: bytes) -> None:
    """Random bytes, with or without an honest beginning, are refused."""
    with pytest.raises(RecordingError):
        read(beginning + data)


@st.composite
def damaged_files(draw: st.DrawFn) -> bytes:
    """A real file, cut off somewhere and with bytes changed, in its first 300 or anywhere."""
    data = bytearray(sample(*draw(st.sampled_from(KINDS))))
    del data[draw(st.just(len(data)) | st.integers(1, len(data))) :]
    reach = min(draw(st.sampled_from([300, len(data)])), len(data)) - 1
    for place, bits in draw(st.lists(st.tuples(st.integers(0, reach), st.integers(1, 255)), max_size=12)):
        data[place] ^= bits
    return bytes(data)


@given(damaged_files())
@fuzzily
def test_survives_damaged_files(data: bytes) -> None:
    """A damaged file is read as far as it goes or refused, and no traceback is printed on the way."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        try:
            recording = read(data)
        except RecordingError as error:
            assert error.code.startswith("recording_")
        else:
            assert np.isfinite(recording.samples).all()
            assert 2.9 < recording.duration_s <= MAX_SPEECH_S
            assert np.abs(recording.samples).max() <= 1
    assert not errors.getvalue()
