"""Files that were made to do harm, or that harm was done to: bounded, and a reason for each."""

from __future__ import annotations

import contextlib
import io
import socket

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.recordings import KINDS, LIVE, MADE, MAX_BYTES, Wave, made, make, sample, spread, voice, write
from worker.enrolment.recording import MAX_SPEECH_S, Recording, read_recording
from worker.errors import RecordingError

BEGINNINGS = [
    b"",
    b"RIFF\xff\xff\0\0WAVEfmt ",
    b"RF64\xff\xff\xff\xffWAVEds64",
    b"fLaC",
    b"OggS",
    b"ID3\4",
    b"\xff\xfb",
]
fuzzily = settings(max_examples=30, deadline=None, derandomize=True)


def read(data: bytes) -> Recording:
    return read_recording(data, max_bytes=MAX_BYTES)


def refuse(data: bytes, code: str) -> str:
    with pytest.raises(RecordingError) as caught:
        read(data)
    assert caught.value.code == code, caught.value.message
    return caught.value.message


def hush(seconds: int, rate: int = 8_000, channels: int = 1) -> Wave:
    return np.zeros((seconds * rate, channels), np.float32)


@pytest.mark.parametrize(("kind", "subtype"), [("OGG", "OPUS"), ("OGG", "VORBIS"), ("MP3", "MPEG_LAYER_III")])
def test_does_not_unpack_silence(kind: str, subtype: str) -> None:
    """Five minutes in a few kilobytes are refused after the first minute."""
    data = write(hush(300), kind, subtype, 8_000)
    assert len(data) < MAX_BYTES
    refuse(data, "recording_too_long")


@pytest.mark.parametrize(
    ("container", "codec", "options"),
    [("ipod", "alac", {}), ("ipod", "aac", {}), ("webm", "libopus", {}), ("webm", "libopus", LIVE)],
)
def test_does_not_unpack_silence_in_a_container(container: str, codec: str, options: dict[str, str]) -> None:
    """Minutes of silence in a container are refused after the first one, whatever its header says of its length."""
    refuse(make(container, codec, hush(240), 8_000, options), "recording_too_long")


def test_reads_the_widest_sound_within_its_bounds() -> None:
    """A minute in eight channels at 192 kHz, 180 MiB of samples, is within memory and time."""
    refuse(write(hush(60, 192_000, 8), "FLAC", "PCM_24", 192_000), "recording_silent")
    wave = spread(np.tile(voice(6, 192_000), 2), 8)
    assert read_recording(write(wave, "FLAC", "PCM_16", 192_000), max_bytes=1 << 28).duration_s == pytest.approx(
        12, abs=1
    )


@pytest.mark.parametrize("mark", [b"stsz", b"stts", b"stsc", b"stco", b"mdhd", b"stsd", b"esds"])
def test_believes_no_table_of_a_container(mark: bytes) -> None:
    """A table that claims two milliards of entries ends with a reason, not with the memory."""
    data = bytearray(made("m4a"))
    place = data.index(mark) + 8
    for offset in (0, 4):
        data[place + offset : place + offset + 4] = b"\x7f\xff\xff\xff"
        with contextlib.suppress(RecordingError):
            assert read(bytes(data)).duration_s <= MAX_SPEECH_S


def test_believes_no_size_of_a_cluster() -> None:
    """A WebM element that claims exabytes is read as far as there is anything, or refused."""
    data = bytearray(made("webm"))
    place = data.index(b"\x1f\x43\xb6\x75") + 4
    data[place : place + 8] = b"\x01" + b"\xff" * 6 + b"\xfe"
    with contextlib.suppress(RecordingError):
        assert read(bytes(data)).duration_s <= MAX_SPEECH_S


@pytest.mark.parametrize(
    "playlist",
    [
        "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n{url}\n#EXT-X-ENDLIST\n",
        "ffconcat version 1.0\nfile {url}\n",
        "[playlist]\nFile1={url}\n",
        '<?xml version="1.0"?><MPD><Period><BaseURL>{url}</BaseURL></Period></MPD>',
        "v=0\nc=IN IP4 127.0.0.1\nm=audio 5004 RTP/AVP 0\na=control:{url}\n",
    ],
)
@pytest.mark.parametrize(
    "beginning", [b"", b"\0\0\0\x10ftypM4A \0\0\0\0", b"\x1a\x45\xdf\xa3\x80", b"ID3\4\0\0\0\0\0\0"]
)
def test_follows_no_playlist(playlist: str, beginning: bytes) -> None:
    """A file that names an address is refused, and nobody calls there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/a.m4a"
        refuse(beginning + playlist.format(url=url).encode(), "recording_not_audio")
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.parametrize("name", [name for name in MADE if "webm" not in name])
def test_follows_no_reference_of_a_film(name: str) -> None:
    """A track that says that its samples are in another file has none."""
    data = bytearray(made(name))
    place = data.index(b"url \0\0\0\1")
    data[place + 7] = 0
    with contextlib.suppress(RecordingError):
        assert read(bytes(data)).duration_s <= MAX_SPEECH_S


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
