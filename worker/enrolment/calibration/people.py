"""Recordings of people for measuring, by speaker: folders of `SPEAKER-*.flac` (or .wav, .ogg, .mp3)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from worker.enrolment.gathering import SAMPLE_RATE, Decoded, Samples, gather
from worker.enrolment.recording import Recording, examine
from worker.enrolment.sound_files import open_sound
from worker.errors import RecordingError

MOST_FILES = 2_000
_KINDS = (".flac", ".wav", ".ogg", ".mp3")
_LOUDNESS = 0.05

People = dict[str, list[Samples]]


def read_people(folder: Path, *, each: int) -> People:
    """Whole recordings, float32 [N] at 16 kHz, of each speaker, up to `each`; raises OSError for no such folder."""
    people: People = {}
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in _KINDS)
    for path in paths[:MOST_FILES]:
        own = people.setdefault(path.stem.split("-")[0], [])
        if len(own) < each:
            with open_sound(path.read_bytes()) as sound:
                own.append(gather(sound).samples)
    return people


def enrol(samples: Samples) -> Recording | str:
    """What enrolment makes of samples at 16 kHz: a recording, or the code of its refusal."""
    try:
        return examine(Decoded(samples, "FLAC/PCM_16", SAMPLE_RATE, 1, 0.0))
    except RecordingError as error:
        return error.code


def level(samples: Samples) -> Samples:
    """Brought to the same loudness (RMS of -26 dBFS), within full scale."""
    raised = samples * np.float32(_LOUDNESS / max(float(np.sqrt(np.mean(np.square(samples)))), 1e-6))
    return np.asarray(np.clip(raised, -1, 1), np.float32)


def share(flags: Sequence[bool]) -> str:
    """How many of how many, and the percentage."""
    return f"{sum(flags)} of {len(flags)} ({100 * sum(flags) / max(len(flags), 1):.1f} %)"
