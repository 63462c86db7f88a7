"""Our own Opus encoder (RFC 6716): mono, for speech, with copies for lost packets; aiortc's is stereo at 96 kbit/s."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from av import AudioFrame, CodecContext
from av.audio.codeccontext import AudioCodecContext

from relay.audio.one_core import one_core
from relay.webrtc.bitrate import Quality
from relay.webrtc.floor import FRAME_BYTES, TRACK_RATE

TIME_BASE = Fraction(1, TRACK_RATE)
QUIET_PEAK = 200
"""Of 32768, -44 dB: an encoder that begins here is not heard."""
LONGEST_WAIT = 50
"""Frames that a new setting waits for a quiet one."""
_SILENCE = bytes(FRAME_BYTES)


class OpusEncoder:
    """Frames of 20 ms in, one packet each out."""

    def __init__(self, quality: Quality) -> None:
        self._quality = quality
        self._wanted = quality
        self._waited = 0
        self._codec = _open(quality)
        self._last = b""
        self._settled: bytes | None = None

    @property
    def quality(self) -> Quality:
        """What it is set to now."""
        return self._quality

    def set(self, quality: Quality) -> None:
        """Encode with another quality, from the next quiet frame on, within a second at the latest."""
        self._wanted = quality

    def encode(self, pcm: bytes | None) -> bytes:
        """The packet for 960 samples at 48 kHz, or for silence."""
        if self._wanted != self._quality:
            self._change(pcm)
        if pcm is None and self._settled is not None:
            return self._settled
        packet = b"".join(map(bytes, self._codec.encode(_to_frame(pcm or _SILENCE))))
        # Once it says the same about silence twice its state does not change any more: silence then costs nothing.
        self._settled = packet if pcm is None and packet == self._last else None
        self._last = packet if pcm is None else b""
        return packet

    def _change(self, pcm: bytes | None) -> None:
        """libopus' bit rate cannot be changed through FFmpeg, so another encoder takes over, where nobody hears it."""
        self._waited += 1
        quiet = pcm is None or int(np.abs(np.frombuffer(pcm, "<i2").astype(np.int32)).max()) < QUIET_PEAK
        if quiet or self._waited >= LONGEST_WAIT:
            self._quality, self._waited, self._settled, self._last = self._wanted, 0, None, b""
            self._codec = _open(self._quality)


def _to_frame(pcm: bytes) -> AudioFrame:
    frame = AudioFrame.from_ndarray(np.frombuffer(pcm, "<i2")[None, :], format="s16", layout="mono")
    frame.sample_rate = TRACK_RATE
    return frame


def _open(quality: Quality) -> AudioCodecContext:
    codec = CodecContext.create("libopus", "w")
    codec.bit_rate = quality.bitrate
    codec.format = "s16"
    codec.layout = "mono"
    codec.sample_rate = TRACK_RATE
    codec.time_base = TIME_BASE
    codec.options = {
        "application": "voip",
        "frame_duration": "20",
        "fec": "1",
        "packet_loss": str(quality.loss_percent),
    }
    codec.open()
    with one_core():
        codec.encode(_to_frame(_SILENCE))
    return codec
