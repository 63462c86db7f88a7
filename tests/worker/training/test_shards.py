"""worker.training.shards: a teacher's utterances on disk."""

from pathlib import Path

import numpy as np
import pytest

from worker.errors import TrainingError
from worker.training.shards import Utterance, count_samples, fill_shard


def _say(number: int) -> Utterance:
    wav = np.full(100 + number, number / 100, np.float32)
    return Utterance(wav, np.array([0, 5, 0]), np.array([1, 98 + number, 1]), 1, f"s{number % 2}", "Yes.")


def test_shards_together_are_what_one_would_have_written(tmp_path: Path) -> None:
    """Two shards share the numbers between them."""
    for part in (0, 1):
        fill_shard(tmp_path / "two", 250, (part, 2), _say)
    fill_shard(tmp_path / "one", 500, (0, 1), _say)
    written = {path.name: path.read_bytes() for path in (tmp_path / "two").glob("*.npz")}
    assert {path.name for path in (tmp_path / "one").glob("*.npz")} <= written.keys() | {"000004.npz"}
    assert np.load(tmp_path / "two" / "000001.npz")["speaker"] == "s1"


def test_what_is_there_is_kept_and_what_is_half_written_is_made_again(tmp_path: Path) -> None:
    """A killed run goes on where it was."""
    fill_shard(tmp_path, 250, (0, 1), _say)
    (tmp_path / "000001.npz").write_bytes(b"PK half")
    asked: list[int] = []

    def say(number: int) -> Utterance:
        asked.append(number)
        return _say(number)

    fill_shard(tmp_path, 250, (0, 1), say)
    assert asked == [1]
    assert count_samples(tmp_path / "000001.npz") == 101


def test_texts_that_nobody_can_say_come_to_an_end(tmp_path: Path) -> None:
    """A shard that can never fill stops with the reason and the fix."""
    with pytest.raises(TrainingError, match="give --text with English sentences"):
        fill_shard(tmp_path, 250, (0, 1), lambda _: None)
