"""G.711 against another implementation, for each of the 65,536 samples."""

from __future__ import annotations

from collections.abc import Callable

import av
import numpy as np
import pytest
from av.audio.codeccontext import AudioCodecContext
from numpy.typing import NDArray

from relay.audio.companding import to_alaw, to_ulaw
from relay.audio.samples import Samples

EVERY_SAMPLE = np.arange(-32768, 32768).astype(np.int16)
LAWS = [pytest.param(to_ulaw, "pcm_mulaw", id="ulaw"), pytest.param(to_alaw, "pcm_alaw", id="alaw")]


@pytest.mark.parametrize(("compress", "codec"), LAWS)
def test_as_ffmpeg(compress: Callable[[Samples], bytes], codec: str) -> None:
    """Each sample is written as FFmpeg does; where G.711 and FFmpeg draw a border differently, by the level beside."""
    ours, theirs = _expand(codec, compress(EVERY_SAMPLE)), _expand(codec, _compress_by_ffmpeg(codec, EVERY_SAMPLE))
    levels = np.unique(_expand(codec, bytes(range(256))))
    steps = np.abs(np.searchsorted(levels, ours) - np.searchsorted(levels, theirs))
    assert np.max(steps) == 1
    assert np.mean(steps) < 0.015
    assert np.mean(np.abs(ours - EVERY_SAMPLE)) < 1.01 * np.mean(np.abs(theirs - EVERY_SAMPLE))


@pytest.mark.parametrize("border", [31, 95, 223, 479, 991, 2015, 4063])
def test_segments_of_ulaw(border: int) -> None:
    """The segments of µ-law end at the decision values of table 2 (14 bits), on both sides of zero."""
    inside, outside = to_ulaw(np.array([4 * border - 1, 4 * border], np.int16))
    assert (inside >> 4 & 7) - (outside >> 4 & 7) == 1
    assert to_ulaw(np.array([1 - 4 * border, -4 * border], np.int16)) == bytes([inside ^ 0x80, outside ^ 0x80])


@pytest.mark.parametrize("border", [64, 128, 256, 512, 1024, 2048])
def test_segments_of_alaw(border: int) -> None:
    """The segments of A-law end at the decision values of table 1 (13 bits)."""
    inside, outside = to_alaw(np.array([8 * border - 1, 8 * border], np.int16))
    assert ((outside ^ 0x55) >> 4 & 7) - ((inside ^ 0x55) >> 4 & 7) == 1


@pytest.mark.parametrize(("compress", "codec"), LAWS)
def test_levels_stay(compress: Callable[[Samples], bytes], codec: str) -> None:
    """What was compressed once is not changed by a second time: all levels but the second zero of µ-law are reached."""
    codes = bytes(range(256))
    again = compress(_expand(codec, codes).astype(np.int16))
    moved = [code for code in codes if again[code] != code]
    assert moved == ([0x7F] if codec == "pcm_mulaw" else [])


@pytest.mark.parametrize(("compress", "codec"), LAWS)
def test_order_stays(compress: Callable[[Samples], bytes], codec: str) -> None:
    """A louder sample is never written as a softer one."""
    assert np.all(np.diff(_expand(codec, compress(EVERY_SAMPLE))) >= 0)


def test_silence() -> None:
    """Digital silence is what telephones send for it: 0xFF in µ-law, 0xD5 in A-law."""
    silence = np.zeros(3, np.int16)
    assert to_ulaw(silence) == b"\xff" * 3
    assert to_alaw(silence) == b"\xd5" * 3


def _compress_by_ffmpeg(codec: str, samples: Samples) -> bytes:
    context = av.CodecContext.create(codec, "w")
    assert isinstance(context, AudioCodecContext)
    context.sample_rate, context.layout, context.format = 8000, "mono", "s16"
    frame = av.AudioFrame(format="s16", layout="mono", samples=len(samples))
    frame.planes[0].update(samples.tobytes())
    frame.sample_rate = 8000
    return b"".join(bytes(packet) for packet in [*context.encode(frame), *context.encode(None)])


def _expand(codec: str, codes: bytes) -> NDArray[np.int64]:
    context = av.CodecContext.create(codec, "r")
    assert isinstance(context, AudioCodecContext)
    context.sample_rate, context.layout = 8000, "mono"
    frames = [frame for packet in (av.Packet(codes), None) for frame in context.decode(packet)]
    return np.concatenate([frame.to_ndarray().reshape(-1) for frame in frames]).astype(np.int64)
