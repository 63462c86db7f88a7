"""What cannot be enrolled, and what is said about it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.worker.recordings import KINDS, MAX_BYTES, RATE, sample, silence, voice, write
from worker.enrolment.calibration.sounds import SOUNDS
from worker.enrolment.gathering import SAMPLE_RATE
from worker.enrolment.recording import Recording, read_recording
from worker.errors import RecordingError


def read(data: bytes) -> Recording:
    return read_recording(data, max_bytes=MAX_BYTES)


def refuse(data: bytes, code: str) -> str:
    with pytest.raises(RecordingError) as caught:
        read(data)
    assert caught.value.code == code, caught.value.message
    return caught.value.message


def test_refuses_a_recording_without_samples() -> None:
    """No bytes, or a header alone, is an empty recording."""
    refuse(b"", "recording_empty")
    refuse(write(silence(0)), "recording_empty")


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"\0\0\0\x20ftypheic\0\0\0\0", "HEIC"),
        (b"\0\0\0\x20ftypM4A \0\0\0\0", "damaged"),
        (b"\0\0\0\x18ftypisom\0\0\0\0", "damaged"),
        (b"\x1a\x45\xdf\xa3\x9f\x42\x86", "damaged"),
        (b"#EXTM3U\nhttp://localhost/a.mp4\n", "playlist"),
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


@pytest.mark.parametrize("loudness", [0.02, 1])
@pytest.mark.parametrize("kind", SOUNDS)
def test_refuses_what_is_not_speech(kind: str, loudness: float) -> None:
    """Hiss, rain, traffic, a dial tone and music cannot be enrolled, loud or soft, nor with a word in them."""
    sound = SOUNDS[kind](10 * SAMPLE_RATE, np.random.default_rng(11)) * np.float32(loudness)
    assert "of sound" in refuse(write(sound, rate=SAMPLE_RATE), "recording_not_speech")
    word = voice(0.5, SAMPLE_RATE, 0.1 * loudness)
    assert "of sound" in refuse(write(np.concatenate([sound, word]), rate=SAMPLE_RATE), "recording_not_speech")


@pytest.mark.parametrize("kind", ["white", "pink"])
def test_refuses_speech_in_noise(kind: str) -> None:
    """Speech that is hardly louder than what is behind it is refused, with the figure; a little noise is taken."""
    speech = np.concatenate([voice(3, SAMPLE_RATE), np.zeros(SAMPLE_RATE, np.float32), voice(3, SAMPLE_RATE)])
    noise = SOUNDS[kind](len(speech), np.random.default_rng(12)) * np.float32(np.sqrt(np.square(speech).mean()) / 0.1)
    assert "dB above the noise" in refuse(
        write(speech + (1 if kind == "traffic" else 0.6) * noise, rate=SAMPLE_RATE), "recording_noisy"
    )
    quality = read(write(speech + 0.1 * noise, rate=SAMPLE_RATE)).quality
    assert quality.snr_db == pytest.approx(21, abs=5)


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
