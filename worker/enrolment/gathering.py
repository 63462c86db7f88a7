"""A sound's blocks to mono samples at 16 kHz, in bounded memory, whatever its header says.

Each block is measured and resampled as it comes, so neither the header nor the sample rate decides how much is held.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import soxr
from numpy.typing import NDArray

from worker.enrolment.clipping import FlatTops
from worker.errors import RecordingError

Samples = NDArray[np.float32]

SAMPLE_RATE = 16_000
"""Samples a second of every reference recording."""

MAX_UPLOAD_S = 60
"""Seconds of the longest recording that is taken."""

BLOCK_COUNT = MAX_UPLOAD_S + 1
"""Blocks of a second that are read: one more than are allowed, so that what is too long shows."""

MAX_CHANNELS = 8
MIN_SAMPLE_RATE = 8_000
MAX_SAMPLE_RATE = 192_000

_CANCELLED_DB = 20.0
_FULL_SCALE = 1.0


@dataclass(frozen=True, slots=True)
class Sound:
    """What a file says of itself, and its blocks float32 [N, channels], each of which lives until the next.

    `length_s` is None where the header does not know it.
    """

    source_format: str
    rate: int
    channels: int
    length_s: float | None
    blocks: Iterator[Samples]


@dataclass(frozen=True, slots=True)
class Decoded:
    """Samples float32 [N] at 16 kHz, mono, within full scale; how they came; the largest share (0-1) of flat tops."""

    samples: Samples = field(repr=False)
    source_format: str
    source_rate: int
    source_channels: int
    flat_share: float


def gather(sound: Sound) -> Decoded:
    """Reads a sound to its end.

    Raises:
        RecordingError: longer than `MAX_UPLOAD_S`, without samples, with samples that are not numbers, or with a rate
            or a number of channels that is not taken.
    """
    _check_header(sound)
    resampler = soxr.ResampleStream(sound.rate, SAMPLE_RATE, sound.channels, dtype="float32", quality="HQ")
    flat_tops = FlatTops(sound.channels)
    offset = np.zeros(sound.channels, np.float32)
    blocks: list[Samples] = []
    frames = 0
    for block in sound.blocks:
        frames += len(block)
        _check_length(frames / sound.rate)
        _check_finite(block, frames / sound.rate)
        flat_tops.add(block)
        offset = offset if blocks else block.mean(axis=0, dtype=np.float64).astype(np.float32)
        blocks.append(_shape(resampler.resample_chunk(block - offset), sound.channels))
    if not frames:
        raise RecordingError("recording_empty", "the recording holds no samples; send 5 to 10 s of speech")
    nothing = np.zeros((0, sound.channels), np.float32)
    blocks.append(_shape(resampler.resample_chunk(nothing, last=True), sound.channels))
    resampled = np.concatenate(blocks)
    blocks.clear()
    _check_finite(resampled, frames / sound.rate)
    return Decoded(_mix(resampled), sound.source_format, sound.rate, sound.channels, flat_tops.share())


def _mix(channels: Samples) -> Samples:
    """Mono without a constant offset, within full scale.

    Channels of opposite phase would cancel each other out: then the loudest one stands for all.
    """
    if not len(channels):
        return np.zeros(0, np.float32)
    centred = channels - channels.mean(axis=0, dtype=np.float64).astype(np.float32)
    mixed = centred.mean(axis=1, dtype=np.float64)
    powers = np.square(centred).mean(axis=0, dtype=np.float64)
    if np.square(mixed).mean() < powers.max() / len(powers) ** 2 / 10 ** (_CANCELLED_DB / 10):
        mixed = centred[:, powers.argmax()].astype(np.float64)
    scaled: Samples = (mixed / max(np.abs(mixed).max(), _FULL_SCALE)).astype(np.float32)
    return scaled


def _check_header(sound: Sound) -> None:
    if sound.rate < MIN_SAMPLE_RATE:
        raise RecordingError(
            "recording_too_low_rate",
            f"the recording has {sound.rate} samples a second, which leaves no voice to copy;"
            f" record with {SAMPLE_RATE} or more ({MIN_SAMPLE_RATE} at the least)",
        )
    if sound.rate > MAX_SAMPLE_RATE:
        raise RecordingError(
            "recording_not_audio",
            f"the recording claims {sound.rate} samples a second, more than any recorder makes;"
            f" convert it to {SAMPLE_RATE} to {MAX_SAMPLE_RATE}",
        )
    if not 0 < sound.channels <= MAX_CHANNELS:
        raise RecordingError(
            "recording_too_many_channels",
            f"the recording has {sound.channels} channels; mix it down to one ({MAX_CHANNELS} at the most)",
        )
    if sound.length_s is not None:
        _check_length(sound.length_s)


def _check_length(seconds: float) -> None:
    if seconds > MAX_UPLOAD_S:
        raise RecordingError(
            "recording_too_long",
            f"the recording is longer than {MAX_UPLOAD_S} s ({seconds:.0f} s or more);"
            " cut out 5 to 10 s of clear speech of one person",
        )


def _check_finite(block: Samples, seconds: float) -> None:
    if not np.isfinite(block).all():
        raise RecordingError(
            "recording_non_finite",
            f"the recording holds samples that are not numbers within its first {np.ceil(seconds):.0f} s"
            " (NaN or infinite); export it again as 16 bit PCM",
        )


def _shape(block: Samples, channels: int) -> Samples:
    return np.ascontiguousarray(block, np.float32).reshape(-1, channels)
