"""A teacher's utterances on disk, one file each: resumable, in shards, and never without an end."""

import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from worker.errors import TrainingError

_MOST_EMPTY = 200
"""Texts in a row with nothing to say before the texts are to blame."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """`wav` float32[samples] at 24 kHz; `durations`, one an id, in `unit` samples; who said what."""

    wav: npt.NDArray[np.float32]
    ids: npt.NDArray[np.int64]
    durations: npt.NDArray[np.int64]
    unit: int
    speaker: str
    text: str


def fill_shard(out: Path, samples: float, shard: tuple[int, int], make: Callable[[int], Utterance | None]) -> None:
    """Write utterances `00000n.npz` of one shard until it holds so many samples; what is there is counted and left as
    it is. `make` gives number n, or None when there is nothing to say.

    Raises TrainingError when that is so too often.
    """
    out.mkdir(parents=True, exist_ok=True)
    number, held, empty = shard[0], 0, 0
    while held < samples:
        path = out / f"{number:06d}.npz"
        found = count_samples(path)
        if found is None and (utterance := make(number)) is not None:
            found = _write(path, utterance)
        empty = 0 if found else empty + 1
        if empty > _MOST_EMPTY:
            raise TrainingError(f"{empty} texts in a row could not be spoken; give --text with English sentences")
        held, number = held + (found or 0), number + shard[1]


def count_samples(path: Path) -> int | None:
    """The samples of an utterance that is there; what a killed run left half written is removed."""
    if not path.exists():
        return None
    try:
        return len(np.load(path)["wav"])
    except (zipfile.BadZipFile, EOFError, KeyError, ValueError):
        path.unlink()
        return None


def _write(path: Path, utterance: Utterance) -> int:
    wav = np.clip(utterance.wav * 32767, -32768, 32767).astype(np.int16)
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        np.savez(
            file, wav=wav, ids=utterance.ids, durations=utterance.durations, unit=utterance.unit,
            speaker=utterance.speaker, text=utterance.text,
        )  # fmt: skip
    part.rename(path)
    return len(wav)
