"""The people a voice is judged with: a reference of five to ten seconds each, and what else was recorded of them.

A folder holds `SPEAKER-*.flac` (or .wav, .ogg, .mp3) and `transcripts.tsv` with the name of a recording and what is
said in it. The first recording of a fitting length is the reference; the others are only listened to.
"""

import csv
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
import soxr

from worker.sv2tts.mel import HOP_LENGTH, SAMPLE_RATE, Floats
from worker.training.judging.errors import JudgingError

EAR_RATE = 16000
"""Samples a second of what the recogniser, the encoder and the naturalness models hear."""

MOST_PEOPLE, MOST_OTHERS = 40, 5
SHORTEST_REFERENCE_S, LONGEST_REFERENCE_S = 5.0, 10.0
_MOST_FILES = 30
_SHORTEST_S, _LONGEST_S = 1.0, 12.0
_KINDS = (".flac", ".wav", ".ogg", ".mp3")
_LOUDNESS = 0.06
_TRANSCRIPTS = "transcripts.tsv"


@dataclass(frozen=True, slots=True)
class Recording:
    """What somebody said: `wav` float32[N] at 24 kHz with an RMS of -24 dBFS, N a multiple of a frame."""

    name: str
    wav: Floats
    text: str

    @property
    def seconds(self) -> float:
        """Its length."""
        return len(self.wav) / SAMPLE_RATE


@dataclass(frozen=True, slots=True)
class Person:
    """A speaker by corpus name, the reference, and the other recordings."""

    name: str
    reference: Recording
    others: tuple[Recording, ...]

    @property
    def mark(self) -> str:
        """A checksum of the reference."""
        return hashlib.sha256(self.reference.wav.tobytes()).hexdigest()[:16]


def to_ear(wav: Floats) -> Floats:
    """Samples at 24 kHz brought to 16 kHz."""
    return np.asarray(soxr.resample(wav, SAMPLE_RATE, EAR_RATE), np.float32)


def read_people(root: Path) -> list[Person]:
    """Everybody in a folder, in the order of their names; raises JudgingError for a folder that nobody can be judged
    with."""
    paths = sorted(path for path in _list_folder(root) if path.suffix.lower() in _KINDS)
    if not paths:
        raise JudgingError(root, f"holds no recordings ({', '.join(_KINDS)})", "put SPEAKER-NAME.flac files there")
    by_name: dict[str, list[Path]] = {}
    for path in paths:
        by_name.setdefault(path.stem.split("-")[0], []).append(path)
    if len(by_name) < 2:
        fix = "add recordings of at least one more person, named SPEAKER-NAME.flac"
        raise JudgingError(root, f"holds a single speaker, '{next(iter(by_name))}', so nobody to be mistaken for", fix)
    if len(by_name) > MOST_PEOPLE:
        raise JudgingError(root, f"holds {len(by_name)} speakers, more than {MOST_PEOPLE}", "judge with fewer")
    texts = _read_texts(root / _TRANSCRIPTS)
    return [_read_person(root, name, found, texts) for name, found in by_name.items()]


def _list_folder(root: Path) -> list[Path]:
    try:
        return list(root.iterdir())
    except OSError as problem:
        fix = "name a folder of recordings with --people"
        raise JudgingError(root, f"cannot be opened as a folder ({problem.strerror})", fix) from problem


def _read_texts(path: Path) -> dict[str, str]:
    fix = "write a line NAME<tab>TEXT for each recording"
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    except (OSError, ValueError, csv.Error) as problem:
        raise JudgingError(path, f"cannot be read ({problem})", fix) from problem
    texts = {row[0]: row[1] for row in rows if len(row) > 1 and row[1].strip()}
    if not texts:
        raise JudgingError(path, "holds no transcripts", fix)
    return texts


def _read_person(root: Path, name: str, paths: Sequence[Path], texts: dict[str, str]) -> Person:
    written = [(path, texts.get(path.name) or texts.get(path.stem)) for path in paths[:_MOST_FILES]]
    recordings = [Recording(path.stem, read_recording(path), text) for path, text in written if text]
    if not recordings:
        fix = f"add them to {root / _TRANSCRIPTS}"
        raise JudgingError(root, f"has no transcript of any recording of speaker '{name}'", fix)
    reference, used = choose_reference(recordings)
    if reference.seconds < SHORTEST_REFERENCE_S:
        fix = f"add recordings of at least {SHORTEST_REFERENCE_S:.0f} s in all"
        raise JudgingError(root, f"has only {reference.seconds:.1f} s of speaker '{name}'", fix)
    fitting = [one for one in recordings if one.name not in used and _SHORTEST_S <= one.seconds <= _LONGEST_S]
    return Person(name, reference, tuple(fitting[:MOST_OTHERS]))


def choose_reference(recordings: Sequence[Recording]) -> tuple[Recording, frozenset[str]]:
    """The reference, and the names of the recordings it takes: the first of a fitting length, else the beginning of
    the first that is longer, else the first ones in a row."""
    for one in recordings:
        if SHORTEST_REFERENCE_S <= one.seconds <= LONGEST_REFERENCE_S:
            return one, frozenset({one.name})
    long = [one for one in recordings if one.seconds > LONGEST_REFERENCE_S]
    taken = long[:1] or list(recordings)
    count = next(
        (n for n in range(1, len(taken)) if sum(one.seconds for one in taken[:n]) >= SHORTEST_REFERENCE_S), len(taken)
    )
    wav = np.concatenate([one.wav for one in taken[:count]])[: int(LONGEST_REFERENCE_S * SAMPLE_RATE)]
    text = " ".join(one.text for one in taken[:count])
    return Recording(taken[0].name, wav, text), frozenset(one.name for one in taken[:count])


def read_recording(path: Path) -> Floats:
    """Mono float32[N] at 24 kHz, N a multiple of a frame, with an RMS of -24 dBFS.

    Raises JudgingError when the file cannot be decoded or holds no sound.
    """
    try:
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True, frames=10_000_000)
    except (OSError, RuntimeError) as problem:
        raise JudgingError(path, f"cannot be decoded ({problem})", "replace or remove it") from problem
    wav = np.asarray(soxr.resample(samples.mean(axis=1), rate, SAMPLE_RATE), np.float32)
    wav = wav[: len(wav) // HOP_LENGTH * HOP_LENGTH]
    level = float(np.sqrt(np.mean(np.square(wav)))) if len(wav) else 0.0
    if not np.isfinite(level) or level < 1e-6:
        raise JudgingError(path, "holds no sound", "replace or remove it")
    return wav * np.float32(_LOUDNESS / level)
