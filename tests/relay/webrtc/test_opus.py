"""relay.webrtc.opus."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import soundfile
import soxr
from av import CodecContext, Packet
from av.audio.codeccontext import AudioCodecContext
from av.audio.frame import AudioFrame

from relay.webrtc.bitrate import CEILING, FLOOR, Quality
from relay.webrtc.floor import FRAME_BYTES
from relay.webrtc.opus import LONGEST_WAIT, OpusEncoder

SPEECH = Path(__file__).resolve().parents[3] / "samples" / "reference-high.wav"
HYBRID_AND_SILK = range(16)


def frames_of_speech() -> list[bytes]:
    samples, rate = soundfile.read(SPEECH, dtype="int16")
    sound = soxr.resample(samples, rate, 48_000).astype("<i2").tobytes()
    return [sound[at : at + FRAME_BYTES] for at in range(0, len(sound) - FRAME_BYTES, FRAME_BYTES)]


def has_copy(packet: bytes) -> bool:
    """Whether a mono packet of one SILK frame carries a copy of the one before (RFC 6716, section 4.2.3)."""
    return packet[0] >> 3 in HYBRID_AND_SILK and bool(packet[1] & 0x40)


def decode(packets: list[bytes]) -> npt.NDArray[np.float64]:
    codec = CodecContext.create("libopus", "r")
    assert isinstance(codec, AudioCodecContext)
    codec.format, codec.layout, codec.sample_rate = "s16", "mono", 48_000
    frames: list[AudioFrame] = []
    for packet in packets:
        frames += codec.decode(Packet(packet))
    return np.concatenate([frame.to_ndarray()[0] for frame in frames]) / 32768


@pytest.mark.parametrize("quality", [Quality(), Quality(24_000, 10), Quality(FLOOR, 20)])
def test_speech_becomes_one_packet_a_frame_at_the_wanted_rate(quality: Quality) -> None:
    """Mono, 20 ms, about as many bits as asked for, and most packets hold a copy of the one before."""
    encoder, frames = OpusEncoder(quality), frames_of_speech()
    packets = [encoder.encode(frame) for frame in frames]
    assert len(packets) == len(frames) and all(packets)
    assert 0.7 * quality.bitrate < 8 * sum(map(len, packets)) / (0.02 * len(packets)) < 1.1 * quality.bitrate
    assert all(packet[0] & 0x04 == 0 and packet[0] & 0x03 == 0 for packet in packets)
    assert sum(map(has_copy, packets)) > 0.5 * len(packets)


def test_speech_survives_its_coding() -> None:
    """What comes out of a decoder is the speech that went in, 6.5 ms later."""
    frames = frames_of_speech()
    encoder = OpusEncoder(Quality())
    sound = decode([encoder.encode(frame) for frame in frames])
    original = np.frombuffer(b"".join(frames), "<i2") / 32768
    shifted = sound[312 : len(original)]
    assert np.corrcoef(original[: len(shifted)], shifted)[0, 1] > 0.8


def test_silence_costs_nothing_once_it_has_settled() -> None:
    """Silence has packets like everything else, which are not encoded again and again, and are decoded to silence."""
    encoder = OpusEncoder(Quality())
    for frame in frames_of_speech()[:50]:
        encoder.encode(frame)
    quiet = [encoder.encode(None) for _ in range(100)]
    assert len(set(quiet[50:])) == 1 and quiet[50] is quiet[99]
    assert np.abs(decode(quiet)[9600:]).max() < 0.001


def test_another_quality_begins_in_a_quiet_moment() -> None:
    """It waits for a pause, but no longer than a second."""
    encoder = OpusEncoder(Quality())
    loud = (np.sin(np.arange(960) / 5) * 16_000).astype("<i2").tobytes()
    encoder.encode(loud)
    encoder.set(Quality(20_000, 10))
    encoder.encode(loud)
    assert encoder.quality.bitrate == CEILING
    encoder.encode(None)
    assert encoder.quality == Quality(20_000, 10)
    encoder.set(Quality())
    for _ in range(LONGEST_WAIT):
        assert encoder.quality.bitrate == 20_000
        encoder.encode(loud)
    assert encoder.quality == Quality()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="there is no /proc to look into")
def test_an_encoder_brings_no_threads() -> None:
    """A peer costs none, and whoever makes an encoder may run on all cores afterwards."""
    allowed = os.sched_getaffinity(0)
    before = len(list(Path("/proc/self/task").iterdir()))
    encoders = [OpusEncoder(Quality()) for _ in range(4)]
    assert all(encoder.encode(None) for encoder in encoders)
    assert len(list(Path("/proc/self/task").iterdir())) == before
    assert os.sched_getaffinity(0) == allowed
