"""An upload's bytes to samples at 16 kHz, every channel apart, in bounded memory and time.

The file is read a second at a time, measured and resampled on the way, so neither its header nor its sample
rate decides how much is held.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import soundfile
import soxr

from worker.enrolment.clipping import FlatTops
from worker.enrolment.file_kinds import is_taken, name_kind
from worker.enrolment.speech_bounds import SAMPLE_RATE, Samples
from worker.errors import RecordingError

MAX_UPLOAD_S = 60
"""Seconds of the longest recording that is taken."""

MAX_CHANNELS = 8
MIN_SAMPLE_RATE = 8_000
MAX_SAMPLE_RATE = 192_000

_UNKNOWN_FRAMES = 2**62
_TAKEN = "send a WAV, FLAC, OGG (Vorbis or Opus) or MP3 file"


@dataclass(frozen=True, slots=True)
class Decoded:
    """Samples float32 [N, channels] at 16 kHz, the format's name, and the largest share of flat tops (0-1)."""

    channels: Samples
    source_format: str
    flat_share: float


def decode(data: bytes) -> Decoded:
    """Decodes WAV, FLAC, Ogg or MP3.

    Raises:
        RecordingError: not such a file, damaged, longer than `MAX_UPLOAD_S`, without samples, with samples that
            are not numbers, or with a rate or a number of channels that is not taken.
    """
    if not is_taken(data):
        kind = name_kind(data)
        seems = f"looks like {kind}" if kind else "does not begin like an audio file"
        raise RecordingError("recording_not_audio", f"the recording {seems}; {_TAKEN}")
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            return _read(file)
    except (soundfile.SoundFileError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise RecordingError(
            "recording_not_audio",
            f"the recording is damaged or of a kind that cannot be decoded ({_quote(error)}); {_TAKEN}",
        ) from error


def _read(file: soundfile.SoundFile) -> Decoded:
    _check_header(file)
    rate, channels = int(file.samplerate), int(file.channels)
    resampler = soxr.ResampleStream(rate, SAMPLE_RATE, channels, dtype="float32", quality="HQ")
    flat_tops = FlatTops(channels)
    offset = np.zeros(channels, np.float32)
    blocks: list[Samples] = []
    frames = 0
    for block in _read_blocks(file, rate, channels):
        frames += len(block)
        _check_length(frames / rate)
        _check_finite(block, frames / rate)
        flat_tops.add(block)
        offset = offset if blocks else block.mean(axis=0, dtype=np.float64).astype(np.float32)
        blocks.append(_shape(resampler.resample_chunk(block - offset), channels))
    if not frames:
        raise RecordingError("recording_empty", f"the recording holds no samples; {_TAKEN} of 5 to 10 s of speech")
    nothing = np.zeros((0, channels), np.float32)
    blocks.append(_shape(resampler.resample_chunk(nothing, last=True), channels))
    resampled = np.concatenate(blocks)
    _check_finite(resampled, frames / rate)
    return Decoded(resampled, f"{file.format}/{file.subtype}", flat_tops.share())


def _read_blocks(file: soundfile.SoundFile, rate: int, channels: int) -> Iterator[Samples]:
    """Blocks of a second into the same memory, and one more than are allowed, so that a false header shows."""
    block = np.zeros((rate, channels), np.float32)
    for _ in range(MAX_UPLOAD_S + 1):
        read = file.read(out=block)
        if not len(read):
            return
        yield read


def _check_header(file: soundfile.SoundFile) -> None:
    rate, channels, frames = int(file.samplerate), int(file.channels), int(file.frames)
    if rate < MIN_SAMPLE_RATE:
        raise RecordingError(
            "recording_too_low_rate",
            f"the recording has {rate} samples a second, which leaves no voice to copy;"
            f" record with {SAMPLE_RATE} or more ({MIN_SAMPLE_RATE} at the least)",
        )
    if rate > MAX_SAMPLE_RATE:
        raise RecordingError(
            "recording_not_audio",
            f"the recording claims {rate} samples a second, more than any recorder makes;"
            f" convert it to {SAMPLE_RATE} to {MAX_SAMPLE_RATE}",
        )
    if channels > MAX_CHANNELS:
        raise RecordingError(
            "recording_too_many_channels",
            f"the recording has {channels} channels; mix it down to one ({MAX_CHANNELS} at the most)",
        )
    if frames < _UNKNOWN_FRAMES:
        _check_length(frames / rate)


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


def _quote(error: Exception) -> str:
    """The decoder's own words without the name of the Python object that held the bytes."""
    words = str(getattr(error, "error_string", "") or error or type(error).__name__)
    return words.strip().rstrip(".")[:120]
