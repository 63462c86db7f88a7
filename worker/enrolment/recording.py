"""From an uploaded file's bytes to a reference recording: mono, 16 kHz, speech only, and fit to make a voice of."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
import soundfile

from worker.enrolment.decoding import Decoded, decode
from worker.enrolment.speech_bounds import (
    SAMPLE_RATE,
    SILENCE_DB,
    Samples,
    find_speech,
    join_speech,
    measure_levels,
)
from worker.errors import RecordingError

SHORTEST_S = 0.1
"""Below this there is nothing to measure."""

MAX_SPEECH_S = 30
"""Seconds of speech that are kept; what follows is left out."""

MIN_SPEECH_S = 3.0
"""Seconds of speech that a voice needs."""

MAX_FLAT_SHARE = 0.01
"""The share of samples that may stand in flat tops before a recording counts as clipped."""

_ADVICE = "send 5 to 10 s of clear speech of one person"
_MEGABYTE = 1024 * 1024
_CANCELLED_DB = 20.0
_FULL_SCALE = 1.0
_STEPS_16_BIT = 32_767


@dataclass(frozen=True, slots=True)
class Recording:
    """A reference recording: float32 [N] at 16 kHz, mono, within full scale; `source_format` as `WAV/PCM_16`."""

    samples: Samples
    duration_s: float
    source_format: str


def read_recording(data: bytes, *, max_bytes: int) -> Recording:
    """Decodes, mixes, trims and checks an upload; the same bytes give the same samples.

    Raises:
        RecordingError: `recording_empty`, `recording_too_large`, `recording_not_audio`, `recording_too_long`,
            `recording_too_low_rate`, `recording_too_many_channels`, `recording_non_finite`, `recording_silent`,
            `recording_clipped` or `recording_too_short`; the message names the figure and the fix.
    """
    _check_size(len(data), max_bytes)
    decoded = decode(data)
    _check_length(len(decoded.channels))
    samples = _mix(decoded.channels)
    _check_level(samples)
    _check_clipping(decoded)
    spans = find_speech(samples)
    _check_speech(sum(span.length for span in spans) / SAMPLE_RATE, len(samples) / SAMPLE_RATE)
    kept = join_speech(samples, spans)[: MAX_SPEECH_S * SAMPLE_RATE]
    return Recording(kept, len(kept) / SAMPLE_RATE, decoded.source_format)


def to_flac(samples: Samples) -> bytes:
    """A FLAC file (16 kHz, mono, 16 bit) of float32 [N]; what is beyond full scale is cut off."""
    steps = np.rint(np.clip(samples, -_FULL_SCALE, _FULL_SCALE) * _STEPS_16_BIT).astype(np.int16)
    file = io.BytesIO()
    soundfile.write(file, steps, SAMPLE_RATE, format="FLAC", subtype="PCM_16")
    return file.getvalue()


def _mix(channels: Samples) -> Samples:
    """Mono without a constant offset, within full scale.

    Channels of opposite phase would cancel each other out: then the loudest one stands for all.
    """
    centred = channels.astype(np.float64)
    centred -= centred.mean(axis=0)
    mixed = centred.mean(axis=1)
    powers = np.square(centred).mean(axis=0)
    if np.square(mixed).mean() < powers.max() / len(powers) ** 2 / 10 ** (_CANCELLED_DB / 10):
        mixed = centred[:, powers.argmax()]
    scaled: Samples = (mixed / max(np.abs(mixed).max(), _FULL_SCALE)).astype(np.float32)
    return scaled


def _check_size(size: int, max_bytes: int) -> None:
    if not size:
        raise RecordingError("recording_empty", f"the recording has no bytes; {_ADVICE}")
    if size > max_bytes:
        raise RecordingError(
            "recording_too_large",
            f"the recording has {size / _MEGABYTE:.1f} MiB, {max_bytes / _MEGABYTE:.1f} are taken;"
            f" {_ADVICE}, or compress it as FLAC, OGG or MP3",
        )


def _check_length(samples: int) -> None:
    if samples < SAMPLE_RATE * SHORTEST_S:
        raise RecordingError(
            "recording_too_short", f"the recording lasts {1000 * samples / SAMPLE_RATE:.0f} ms; {_ADVICE}"
        )


def _check_level(samples: Samples) -> None:
    loudest = float(measure_levels(samples).max())
    if loudest <= SILENCE_DB:
        raise RecordingError(
            "recording_silent",
            f"the recording is silent: its loudest moment has {loudest:.0f} dB of full scale, speech has about -25;"
            " check the microphone and its level",
        )


def _check_clipping(decoded: Decoded) -> None:
    if decoded.flat_share > MAX_FLAT_SHARE:
        raise RecordingError(
            "recording_clipped",
            f"{decoded.flat_share:.1%} of the recording is cut off at the peak, {MAX_FLAT_SHARE:.0%} is taken;"
            " record again with a lower input level or farther from the microphone",
        )


def _check_speech(speech_s: float, whole_s: float) -> None:
    if speech_s < MIN_SPEECH_S:
        raise RecordingError(
            "recording_too_short",
            f"the recording holds {speech_s:.1f} s of speech in {whole_s:.1f} s,"
            f" {MIN_SPEECH_S:.0f} are needed and 5 to 10 are best; {_ADVICE}",
        )
