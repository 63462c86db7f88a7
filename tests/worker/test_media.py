"""Every container and codec that is taken, made here and read through the real decoder."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Mapping

import av
import numpy as np
import pytest
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.recordings import LIVE, MADE, Wave, made, make, rewrap, spread, voice, write
from worker.enrolment.decoding import COMMAND, ENVIRONMENT, decode
from worker.enrolment.gathering import SAMPLE_RATE, Decoded
from worker.errors import RecordingError

WRITTEN = [
    ("WAV", "PCM_16"),
    ("WAV", "FLOAT"),
    ("FLAC", "PCM_16"),
    ("MP3", "MPEG_LAYER_III"),
    ("OGG", "VORBIS"),
    ("OGG", "OPUS"),
]
fuzzily = settings(max_examples=30, deadline=None, derandomize=True)


def list_rates(codec: str) -> tuple[int, ...]:
    """Opus knows no 44.1 kHz."""
    return (8_000, 16_000, 48_000) if "opus" in codec.lower() else (8_000, 16_000, 44_100, 48_000)


def speech(rate: int, channels: int = 1) -> Wave:
    """float32 [N, channels]: the same five seconds on each channel."""
    return spread(voice(5, rate), channels)


def written(kind: str, subtype: str, rate: int, channels: int) -> bytes:
    return write(speech(rate, channels), kind, subtype, rate)


def check(decoded: Decoded, source_format: str, rate: int, channels: int) -> None:
    """It is the speech that went in: as long, as loud, and alike."""
    assert (decoded.source_format, decoded.source_channels) == (source_format, channels)
    assert len(decoded.samples) / SAMPLE_RATE == pytest.approx(5, abs=0.1 + 2048 / rate)  # a codec pads by two frames
    mine = np.asarray(soxr.resample(speech(rate)[:, 0], rate, SAMPLE_RATE), np.float32)
    length = min(len(mine), len(decoded.samples))
    likeness = np.fft.irfft(np.fft.rfft(decoded.samples[:length]) * np.fft.rfft(mine[:length]).conj())
    powers = np.square(decoded.samples, dtype=np.float64).sum(), np.square(mine, dtype=np.float64).sum()
    assert likeness.max() / np.sqrt(powers[0] * powers[1]) > 0.95
    assert powers[0] == pytest.approx(powers[1], rel=0.25)


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize(("kind", "subtype", "rate"), [(*one, rate) for one in WRITTEN for rate in list_rates(one[1])])
def test_reads_files_of_every_rate(kind: str, subtype: str, rate: int, channels: int) -> None:
    """WAV, FLAC, MP3 and Ogg are read at every rate, mono and stereo."""
    decoded = decode(written(kind, subtype, rate, channels))
    check(decoded, f"{kind}/{subtype}", rate, channels)
    assert decoded.source_rate == rate or subtype == "OPUS"


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize(("name", "rate"), [(name, rate) for name in MADE for rate in list_rates(MADE[name][1])])
def test_reads_containers_of_every_rate(name: str, rate: int, channels: int) -> None:
    """M4A, MP4 and WebM are read at every rate, mono and stereo, as a phone or a browser writes them."""
    check(decode(made(name, rate, channels)), MADE[name][3], rate, channels)


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("options", [{}, LIVE], ids=["webm", "live"])
def test_reads_vorbis_in_webm(options: Mapping[str, str], channels: int) -> None:
    """WebM with Vorbis is read, with and without a length."""
    check(decode(rewrap(written("OGG", "VORBIS", 48_000, channels), "webm", options)), "WEBM/VORBIS", 48_000, channels)


def test_reads_the_sound_of_a_film() -> None:
    """Of a film the sound is read, and its pictures are never decoded."""
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as output:
        pictures, sound = output.add_stream("mpeg4", rate=10), output.add_stream("aac", rate=48_000)
        pictures.width, pictures.height, pictures.pix_fmt, sound.layout = 64, 64, "yuv420p", "mono"
        for _ in range(50):
            output.mux(pictures.encode(av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), format="rgb24")))
        output.mux(pictures.encode(None))
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(speech(48_000).T), format="fltp", layout="mono")
        frame.sample_rate = 48_000
        output.mux(sound.encode(frame))
        output.mux(sound.encode(None))
    check(decode(file.getvalue()), "MP4/AAC", 48_000, 1)


def test_refuses_a_film_without_sound() -> None:
    """A silent film is no recording, and the message says so."""
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as output:
        stream = output.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p"
        output.mux(stream.encode(av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), format="rgb24")))
        output.mux(stream.encode(None))
    with pytest.raises(RecordingError, match="no sound") as caught:
        decode(file.getvalue())
    assert caught.value.code == "recording_not_audio"


def test_refuses_a_codec_that_is_not_taken() -> None:
    """A container with a codec beyond the list is refused."""
    with pytest.raises(RecordingError) as caught:
        decode(make("mp4", "ac3", speech(48_000), 48_000, {}))
    assert caught.value.code == "recording_not_audio"


@pytest.mark.parametrize("name", ["m4a", "mp4, fragments", "webm, live"])
def test_reads_what_is_there_of_a_broken_upload(name: str) -> None:
    """A file cut off in the middle is read up to there, or refused with a reason."""
    data = made(name)
    for share in (0.1, 0.5, 0.9, 0.99):
        try:
            decoded = decode(data[: int(len(data) * share)])
        except RecordingError as error:
            assert error.code.startswith("recording_")
        else:
            assert len(decoded.samples) / SAMPLE_RATE <= 5 * share + 0.5


def test_the_decoder_speaks_for_itself() -> None:
    """The program answers with a line of JSON and float32 samples, whatever it is given."""
    for data, field in ((made("m4a"), "source_format"), (b"not audio", "code"), (b"", "code")):
        done = subprocess.run(
            COMMAND, input=data, env=ENVIRONMENT, cwd="/", capture_output=True, timeout=60, check=True
        )
        head, _, body = done.stdout.partition(b"\n")
        assert field in json.loads(head)
        assert len(body) % 4 == 0


@st.composite
def damaged_files(draw: st.DrawFn) -> bytes:
    """A real file with bytes changed, in its first 600 or anywhere, some repeated, and perhaps cut off."""
    data = bytearray(made(draw(st.sampled_from(sorted(MADE)))))
    del data[draw(st.just(len(data)) | st.integers(1, len(data))) :]
    reach = min(draw(st.sampled_from([600, len(data)])), len(data)) - 1
    for place, value in draw(st.lists(st.tuples(st.integers(0, reach), st.integers(1, 255)), max_size=12)):
        data[place] ^= value
    return bytes(data)


@given(damaged_files())
@fuzzily
def test_survives_damaged_containers(data: bytes) -> None:
    """A damaged container is read as far as it goes, or refused as a recording."""
    try:
        decoded = decode(data)
    except RecordingError as error:
        assert error.code.startswith("recording_")
        assert "BytesIO" not in error.message
    else:
        assert np.isfinite(decoded.samples).all()
        assert np.abs(decoded.samples).max(initial=0) <= 1
