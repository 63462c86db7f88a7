"""Names of formats, what they stand for, and how a client learns what there is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.audio.formats import OFFERED, PCM_RATES, Codec, Format, list_formats, parse_format
from relay.errors import InvalidMessage

EVERY: list[Format] = [
    Format(codec, rate, bitrate)
    for codec, rates in OFFERED.items()
    for rate, kbits in rates.items()
    for bitrate in [*[1000 * kbit for kbit in kbits], *([] if kbits else [None])]
]

ELEVENLABS = [
    "mp3_22050_32",
    "mp3_24000_48",
    *[f"mp3_44100_{kbit}" for kbit in (32, 64, 96, 128, 192)],
    *[f"pcm_{rate}" for rate in (8000, 16000, 22050, 24000, 32000, 44100, 48000)],
    "ulaw_8000",
    "alaw_8000",
    *[f"opus_48000_{kbit}" for kbit in (32, 64, 96, 128, 192)],
]


@pytest.mark.parametrize("format", EVERY, ids=lambda format: format.name)
def test_names_read_back(format: Format) -> None:
    """A format's name is read as that format, and nothing else."""
    assert parse_format(format.name) == format


@pytest.mark.parametrize("name", [*ELEVENLABS, "wav_24000", "flac_24000", "aac_44100_64", "f32_16000"])
def test_known_names(name: str) -> None:
    """Every output format of ElevenLabs is there under its name, and those the other dialects need."""
    assert parse_format(name).name == name


def test_parts() -> None:
    """A name is a codec, a rate in Hz and, where there is a choice, kbit/s."""
    assert parse_format("mp3_44100_128") == Format(Codec.MP3, 44100, 128_000)
    assert parse_format("ulaw_8000") == Format(Codec.ULAW, 8000)
    assert parse_format("opus_48000") == Format(Codec.OPUS, 48000, None)


@pytest.mark.parametrize(
    ("name", "media_type"),
    [
        ("pcm_16000", "audio/pcm"),
        ("f32_16000", "audio/pcm"),
        ("wav_24000", "audio/wav"),
        ("ulaw_8000", "audio/basic"),
        ("ulaw_16000", "audio/PCMU;rate=16000"),
        ("alaw_8000", "audio/PCMA;rate=8000"),
        ("mp3_44100_128", "audio/mpeg"),
        ("opus_48000_64", "audio/ogg;codecs=opus"),
        ("flac_24000", "audio/flac"),
        ("aac_44100_64", "audio/aac"),
    ],
)
def test_media_types(name: str, media_type: str) -> None:
    """Each format has the media type that players know it by (FM4)."""
    assert parse_format(name).media_type == media_type


BAD = [
    "",
    "mpeg",
    "mp3",
    "MP3_44100_128",
    "mp3_44100_129",
    "mp3_11025_64",
    "mp3_22050_192",
    "pcm_24000_16",
    "pcm_24001",
    "pcm_24000 ",
    "pcm_24000\n",
    "pcm_２４０００",
    "opus_24000_64",
    "pcm_-8000",
    "flac_24000_64",
    "\ud800",
    "pcm_" + "9" * 10_000,
]


@pytest.mark.parametrize("name", BAD, ids=lambda name: ascii(name)[:20])
def test_unknown_names(name: str) -> None:
    """A name that is not offered is refused with the field, the name and the list of what there is (FM7)."""
    with pytest.raises(InvalidMessage) as refused:
        parse_format(name)
    assert refused.value.field == "output_format"
    assert list_formats() in refused.value.message
    assert len(refused.value.message) < 1500
    refused.value.message.encode()


@given(st.text(max_size=40))
def test_any_text(name: str) -> None:
    """Whatever is sent is a format or refused, and nothing worse."""
    try:
        assert parse_format(name).name == name
    except InvalidMessage as refused:
        assert refused.field == "output_format"


def test_no_format_that_is_not_offered() -> None:
    """A Format that exists can be encoded: others cannot be made."""
    with pytest.raises(InvalidMessage):
        Format(Codec.PCM_S16, 11025)
    with pytest.raises(InvalidMessage):
        Format(Codec.MP3, 44100, 64)


def test_list() -> None:
    """The list expands to all names, and to no other."""
    listed = list_formats()
    assert "pcm_{8000,16000,22050,24000,32000,44100,48000}" in listed
    assert "opus_48000_{32,48,64,96,128,192}" in listed
    expanded = {
        f"{stem}{rate}{kbit}"
        for stem, rates, kbits in (_take_apart(group) for group in listed.split(", "))
        for rate in rates
        for kbit in kbits
    }
    assert expanded == {format.name for format in EVERY}
    assert {format.sample_rate for format in EVERY} == set(PCM_RATES)


def _take_apart(group: str) -> tuple[str, list[str], list[str]]:
    codec, rates, *kbits = group.split("_")
    return f"{codec}_", _alternatives(rates), [f"_{kbit}" for kbit in _alternatives(kbits[0])] if kbits else [""]


def _alternatives(part: str) -> list[str]:
    return part.strip("{}").split(",")
