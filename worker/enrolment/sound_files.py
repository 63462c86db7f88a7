"""WAV, FLAC, Ogg (Vorbis, Opus) and MP3, by libsndfile."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import soundfile

from worker.enrolment.file_kinds import refuse_damage
from worker.enrolment.gathering import BLOCK_COUNT, Samples, Sound

_UNKNOWN_FRAMES = 2**62


@contextmanager
def open_sound(data: bytes) -> Iterator[Sound]:
    """The sound of a file, decoded a second at a time.

    Raises:
        RecordingError: `recording_not_audio` with libsndfile's reason, on opening or in the middle.
    """
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            frames = int(file.frames)
            yield Sound(
                source_format=f"{file.format}/{file.subtype}",
                rate=int(file.samplerate),
                channels=int(file.channels),
                length_s=frames / file.samplerate if frames < _UNKNOWN_FRAMES else None,
                blocks=_read_blocks(file),
            )
    except (soundfile.SoundFileError, ValueError, TypeError, OverflowError) as error:
        words = str(getattr(error, "error_string", "") or error or type(error).__name__)
        raise refuse_damage(words) from error


def _read_blocks(file: soundfile.SoundFile) -> Iterator[Samples]:
    """Blocks of a second into the same memory, and one more than are allowed, so that a false header shows."""
    block = np.zeros((int(file.samplerate), int(file.channels)), np.float32)
    for _ in range(BLOCK_COUNT):
        read = file.read(out=block)
        if not len(read):
            return
        yield read
