"""How natural each speaker of a corpus sounds, so that the synthesizer can be told, and asked for the best.

    python -m worker.training.quality --source DIR [--source DIR ...] --corpus DIR

The sources are those that the corpus was packed from, in the same order. Scores are DistillMOS (Stahl and Gamper,
2025), predicted mean opinion scores from 1 to 5; needs the package `distillmos`.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soxr
import torch

from worker.training.dataset import QUALITY, group_speakers
from worker.training.judging.naturalness import Judge, load_distillmos
from worker.training.render import SAMPLE_RATE

_JUDGE_RATE = 16000
_LONGEST_S = 4


def score_speakers(sources: Sequence[Path], judge: Judge, listen_to: int) -> npt.NDArray[np.float32]:
    """The mean score [S] of up to `listen_to` utterances of each speaker, the longest ones."""
    scores = []
    for paths in group_speakers(sources):
        longest = sorted(paths, key=lambda path: -path.stat().st_size)[:listen_to]
        scores.append(np.mean([judge(_read(path)) for path in longest]))
    return np.asarray(scores, np.float32)


def _read(path: Path) -> npt.NDArray[np.float32]:
    wav = np.load(path)["wav"][: _LONGEST_S * SAMPLE_RATE].astype(np.float32) / 32768
    return np.asarray(soxr.resample(wav, SAMPLE_RATE, _JUDGE_RATE), np.float32)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Score the speakers of a packed corpus.")
    parser.add_argument("--source", type=Path, action="append", required=True)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--listen-to", type=int, default=2, help="utterances of each speaker")
    options = parser.parse_args()
    torch.set_num_threads(1)
    judge = load_distillmos()
    if judge is None:
        raise SystemExit("quality: the packages 'distillmos' and 'torch' are needed to score recordings")
    scores = score_speakers(options.source, judge, options.listen_to)
    np.save(options.corpus / QUALITY, scores)
    print(f"{len(scores)} speakers, {scores.mean():.2f} on average")


if __name__ == "__main__":
    main()
