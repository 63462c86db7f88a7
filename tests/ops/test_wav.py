"""WAV files that can be played whenever the writing stops."""

from __future__ import annotations

import io
import wave
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timbrelay.errors import OpsError
from timbrelay.wav import WavWriter, check_writable, make_header

RATE = 24_000


@given(st.integers(8_000, 48_000), st.binary(max_size=400).filter(lambda pcm: len(pcm) % 2 == 0))
def test_the_header_is_what_others_read(rate: int, pcm: bytes) -> None:
    """Another reader finds mono 16-bit PCM of the given rate, and every sample."""
    with wave.open(io.BytesIO(make_header(rate, len(pcm)) + pcm)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, rate)
        assert file.readframes(file.getnframes()) == pcm


def test_the_file_is_valid_after_each_piece(tmp_path: Path) -> None:
    """Before anything is closed the file holds, playable, all that was written."""
    path = tmp_path / "demo.wav"
    written = b""
    with WavWriter(path, RATE) as writer:
        for piece in (b"", b"\x01\x00" * 1920, b"\x02\x00" * 7):
            writer.write(piece)
            written += piece
            with wave.open(str(path)) as file:
                assert file.readframes(file.getnframes()) == written
        assert writer.seconds == pytest.approx(1927 / RATE)


def test_an_older_file_is_replaced(tmp_path: Path) -> None:
    """Nothing of an older, longer file is left."""
    path = tmp_path / "demo.wav"
    path.write_bytes(b"x" * 10_000)
    with WavWriter(path, RATE) as writer:
        writer.write(b"\x00\x00")
    assert path.stat().st_size == 46


def test_a_full_disk_is_a_sentence() -> None:
    """What the file system refuses is reported with the file and the way out."""
    with pytest.raises(OpsError, match=r"/dev/full cannot be written \(No space left on device\); choose another file"):
        WavWriter(Path("/dev/full"), RATE).write(b"\0\0")


def test_where_nothing_is_said_an_older_file_stays(tmp_path: Path) -> None:
    """The file is made, or replaced, with the first sound."""
    path = tmp_path / "demo.wav"
    path.write_bytes(b"precious")
    with WavWriter(path, RATE):
        pass
    assert path.read_bytes() == b"precious"


def test_a_place_that_cannot_be_written_is_known_early(tmp_path: Path) -> None:
    """A folder, or a file in a folder that is not there, is refused before any work is done."""
    check_writable(tmp_path / "new.wav")
    for path in (tmp_path, tmp_path / "none" / "new.wav"):
        with pytest.raises(OpsError, match="choose another file with --output"):
            check_writable(path)
