"""How far the processes of a stage are, read from what they have written."""

import csv
import math
from collections.abc import Callable
from pathlib import Path

from worker.errors import TrainingError

_SPEECH_BYTES_S = 48_000
"""An utterance is stored as 16-bit samples at 24 kHz; what else is in its file is small."""
_TAIL_BYTES = 4000


def last_row(path: Path) -> list[float]:
    """The numbers of the last whole line of a CSV file; none when there is no such line."""
    if not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        lines = file.read().decode(errors="replace").split("\n")[:-1]
    try:
        return [float(value) for row in csv.reader(lines[-1:]) for value in row]
    except ValueError:
        return []


def read_seconds(folder: Path, shard: tuple[int, int]) -> float:
    """Seconds of speech in the utterances `00000n.npz` of a shard of a folder, by their size."""
    first, count = shard
    paths = (path for path in folder.glob("*.npz") if int(path.stem) % count == first)
    return sum(path.stat().st_size for path in paths) / _SPEECH_BYTES_S


def measure_speech(folder: Path, hours: float, shard: tuple[int, int]) -> Callable[[], tuple[float, str]]:
    """How far a shard is from its part of so many hours of speech."""
    wanted = hours * 3600 / shard[1]

    def measure() -> tuple[float, str]:
        seconds = read_seconds(folder, shard)
        return min(1.0, seconds / wanted), f"{seconds / 60:.1f} of {wanted / 60:.1f} min of speech"

    return measure


def measure_files(folder: Path, pattern: str, count: int) -> Callable[[], tuple[float, str]]:
    """How many of the files that there will be are there."""

    def measure() -> tuple[float, str]:
        found = sum(1 for _ in folder.glob(pattern))
        return min(1.0, found / max(1, count)), f"{found} of {count}"

    return measure


def measure_training(path: Path, minutes: float, seconds_column: int) -> Callable[[], tuple[float, str]]:
    """How far a training is by its curve; the column after the step or the last holds the seconds.

    Raises TrainingError when a loss in the last line is no number.
    """

    def measure() -> tuple[float, str]:
        row = last_row(path)
        if not row:
            return 0.0, "first steps"
        losses = [value for index, value in enumerate(row) if index not in (0, seconds_column % len(row))]
        if not all(math.isfinite(value) for value in losses):
            raise TrainingError(
                f"the loss is not finite at step {row[0]:.0f} (see {path}); the last checkpoint is kept"
            )
        share = min(1.0, row[seconds_column] / (minutes * 60))
        return share, f"step {row[0]:.0f}, loss {losses[0]:.3f}"

    return measure
