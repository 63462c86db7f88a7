"""mp3, Opus, FLAC and AAC, judged by FFmpeg's and libsndfile's decoders."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from relay.audio.compression import RECOGNISABLE
from relay.audio.formats import OFFERED, Codec, Format, parse_format
from tests.relay.audio.listening import (
    CONTAINERS,
    PIECE,
    cut,
    decode,
    decode_by_libsndfile,
    decode_piece,
    encode,
    encode_pieces,
    expect,
    make_tone,
    make_voice,
    measure_likeness,
)

LEAD = {Codec.MP3: 1105, Codec.AAC: 1024, Codec.OPUS: 0, Codec.FLAC: 0}
"""Samples of silence before the speech, as docs/formats.md promises."""

LEAST_LIKENESS = {Codec.MP3: 14, Codec.AAC: 14, Codec.OPUS: 9, Codec.FLAC: 200}

ONE_PER_RATE = [
    Format(codec, rate, kbits[min(2, len(kbits) - 1)] * 1000 if kbits else None)
    for codec, rates in OFFERED.items()
    if codec in LEAD
    for rate, kbits in rates.items()
]
EVERY = [
    Format(codec, rate, bitrate)
    for codec, rates in OFFERED.items()
    if codec in LEAD
    for rate, kbits in rates.items()
    for bitrate in [*[1000 * kbit for kbit in kbits], *([] if kbits else [None])]
]
FRAMES = {"mp3_44100_128": 1152, "mp3_24000_64": 576, "aac_44100_64": 1024, "aac_24000_64": 1024}


def by_name(format: Format) -> str:
    return format.name


@pytest.mark.parametrize("format", ONE_PER_RATE, ids=by_name)
def test_speech_comes_back(format: Format) -> None:
    """Decoded, the speech begins where it should, is the same, and is all there (FM3)."""
    voice = make_voice(36_000)
    meant = expect(format, voice)
    for rate, heard in _decode_by_all(format, encode(format.name, voice)):
        assert rate == format.sample_rate
        speech = heard[LEAD[format.codec] :]
        assert len(speech) >= len(meant)
        assert measure_likeness(speech, meant) > LEAST_LIKENESS[format.codec]
        last = len(meant) // 20
        assert measure_likeness(speech[len(meant) - last :], meant[-last:]) > LEAST_LIKENESS[format.codec] - 5


@pytest.mark.parametrize("name", ["flac_8000", "flac_24000", "flac_44100", "opus_48000_64"])
@pytest.mark.parametrize("samples", [1, 2, 15, 16, 480, 1919, 1920, 1921, 10_001])
def test_exact_lengths(name: str, samples: int) -> None:
    """FLAC and Opus give back exactly the samples there were, without lead or padding."""
    format = parse_format(name)
    for _, heard in _decode_by_all(format, encode(name, make_voice(samples))):
        assert len(heard) == math.ceil(samples * format.sample_rate / 24000)


@pytest.mark.parametrize("name", list(FRAMES))
@pytest.mark.parametrize("samples", [1, 480, 5000, 24_000, 24_001])
def test_padding(name: str, samples: int) -> None:
    """mp3 and AAC add their lead and fill at most what three frames have, or come to the least a player knows."""
    format, frame = parse_format(name), FRAMES[name]
    speech = math.ceil(samples * format.sample_rate / 24000)
    _, heard = decode(encode(name, make_voice(samples)), container=CONTAINERS[format.codec])
    lead = LEAD[format.codec]
    assert lead + speech <= len(heard) <= lead + max(speech, RECOGNISABLE * frame) + 3 * frame


@pytest.mark.parametrize("format", EVERY, ids=by_name)
@pytest.mark.parametrize("samples", [1, 20, 240, 480, 960, 3000])
def test_very_short(format: Format, samples: int) -> None:
    """One sample, 20 ms or half a word is a file that a player recognises and plays (FM6)."""
    encoded = encode(format.name, make_tone(440, samples))
    rate, heard = decode(encoded)
    assert rate == format.sample_rate
    assert len(heard) >= math.ceil(samples * format.sample_rate / 24000)


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(["mp3_22050_32", "mp3_44100_128", "opus_48000_32", "flac_44100", "aac_44100_64"]),
    samples=st.integers(1, 9000),
    sizes=st.lists(st.integers(1, PIECE), min_size=1, max_size=20),
)
def test_cutting_changes_nothing(name: str, samples: int, sizes: list[int]) -> None:
    """The same speech in other pieces decodes to the same samples."""
    voice, container = make_voice(samples), CONTAINERS[parse_format(name).codec]
    _, whole = decode(encode(name, voice), container=container)
    _, pieces = decode(encode(name, voice, sizes), container=container)
    assert np.array_equal(whole, pieces)


@pytest.mark.parametrize(
    ("name", "least_ms"),
    [
        ("opus_48000_64", 73),
        ("flac_24000", 72),
        ("flac_44100", 52),
        ("flac_8000", 48),
        ("aac_44100_64", 23),
        ("mp3_22050_32", -25),
        ("mp3_24000_48", 1.9),
        ("mp3_44100_128", 1),
    ],
)
def test_first_piece(name: str, least_ms: float) -> None:
    """The first 80 ms yield sound at once, not only a header, as much of it as docs/formats.md says."""
    format = parse_format(name)
    first = encode_pieces(name, cut(make_voice(24_000)))[0]
    heard = decode_piece(name, first)
    assert heard > 0
    assert (heard - LEAD[format.codec]) / format.sample_rate * 1000 >= least_ms


@pytest.mark.parametrize("format", [format for format in EVERY if format.bitrate], ids=by_name)
def test_bitrates(format: Format) -> None:
    """A stream takes no more than the bitrate that was asked for, but for its first and last frames."""
    seconds = 2
    size = len(encode(format.name, make_voice(seconds * 24_000)))
    assert format.bitrate is not None
    assert size * 8 < format.bitrate * (seconds * 1.05 + 0.2)
    assert size * 8 > format.bitrate * seconds * 0.5


@pytest.mark.parametrize("name", ["mp3_44100_64", "opus_48000_64", "aac_48000_64", "flac_48000"])
def test_one_stream(name: str) -> None:
    """There is one header at most, and nothing between the frames of it (AQ17)."""
    encoded = encode(name, make_voice(48_000))
    marks = {"mp3": b"ID3", "opus": b"OpusHead", "aac": b"ADIF", "flac": b"fLaC"}
    assert encoded.count(marks[name.split("_")[0]]) == (name[0] in "of")
    assert b"Xing" not in encoded
    assert b"Info" not in encoded


@pytest.mark.parametrize("format", ONE_PER_RATE, ids=by_name)
def test_full_scale(format: Format) -> None:
    """The loudest samples there are come through without wrapping around."""
    square = np.where(make_tone(100, 24_000) >= 0, 32767, -32768).astype("<i2")
    _, heard = decode(encode(format.name, square), container=CONTAINERS[format.codec])
    assert measure_likeness(heard[LEAD[format.codec] :], expect(format, square)) > 8


def _decode_by_all(format: Format, encoded: bytes) -> list[tuple[int, NDArray[np.float64]]]:
    """libsndfile reads no AAC."""
    by_ffmpeg = decode(encoded)
    return [by_ffmpeg] if format.codec is Codec.AAC else [by_ffmpeg, decode_by_libsndfile(encoded)]
