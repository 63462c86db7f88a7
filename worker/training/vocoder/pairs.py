"""Recordings beside the synthesizer's account of them: what the vocoder gets in service, and what it should sound like.

    python -m worker.training.vocoder.pairs --source DIR [--source DIR ...] --corpus DIR --synthesizer WEIGHTS \\
        --out FILE.npz [--limit 700]

The sources are those that the corpus was packed from, in the same order.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import torch

from worker.errors import TrainingError
from worker.sv2tts.mel import HOP_LENGTH
from worker.training.dataset import Corpus, group_speakers
from worker.training.synthesizer.batches import collate
from worker.training.synthesizer.network import Tacotron
from worker.training.synthesizer.train import start_network
from worker.training.vocoder.distil import say_batch

_BATCH = 16
_FRAMES = range(130, 600)
"""Lengths of utterances that are taken: long enough for a crop, short enough for a batch."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Utterances end to end; number k has the frames from `starts[k]` to `starts[k + 1]`: `wav` int16 at 24 kHz, and
    the log-mels float16[frames, 80] that are `true` and that the synthesizer `told`."""

    wav: npt.NDArray[np.int16]
    true: npt.NDArray[np.float16]
    told: npt.NDArray[np.float16]
    starts: npt.NDArray[np.int64]

    @classmethod
    def read(cls, path: Path) -> Self:
        """What `write_pairs` wrote."""
        with np.load(path) as stored:
            return cls(*(stored[name] for name in ("wav", "true", "told", "starts")))

    def write(self, path: Path) -> None:
        """Store them; the file appears only when it is whole."""
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            np.savez(file, wav=self.wav, true=self.true, told=self.told, starts=self.starts)
        part.rename(path)

    def __len__(self) -> int:
        return len(self.starts) - 1


def write_pairs(sources: Sequence[Path], corpus: Corpus, network: Tacotron, out: Path, limit: int, seed: int) -> int:
    """Store up to `limit` pairs of a corpus; their number. Raises TrainingError when the sources are not its own."""
    paths = [path for speaker in group_speakers(sources) for path in speaker]
    if len(paths) != len(corpus):
        raise TrainingError(
            f"{len(paths)} utterances in the sources and {len(corpus)} in the corpus; "
            "name the folders that it was packed from, in the same order"
        )
    rng, frames = np.random.default_rng(seed), np.diff(corpus.starts)
    usable = np.flatnonzero((frames >= _FRAMES.start) & (frames < _FRAMES.stop))
    rows = rng.permutation(usable)[:limit]
    rows = rows[np.argsort(frames[rows], kind="stable")]
    if not len(rows):
        raise TrainingError(f"the corpus has no utterance of {_FRAMES.start} to {_FRAMES.stop} frames")
    told = [mel for group in _groups(rows) for mel in _tell(network, corpus, group, rng)]
    pairs = Pairs(
        wav=np.concatenate([_read_wav(paths[row], int(frames[row])) for row in rows]),
        true=np.concatenate([corpus.mels[corpus.starts[row] : corpus.starts[row + 1]] for row in rows]),
        told=np.concatenate(told),
        starts=np.cumsum([0, *frames[rows]]),
    )
    pairs.write(out)
    return len(rows)


def _groups(rows: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    return [rows[low : low + _BATCH] for low in range(0, len(rows), _BATCH)]


def _tell(
    network: Tacotron, corpus: Corpus, rows: npt.NDArray[np.int64], rng: np.random.Generator
) -> list[npt.NDArray[np.float16]]:
    said = say_batch(network, collate(corpus, rows, rng, noise=0.02)).numpy().astype(np.float16)
    lengths = corpus.starts[rows + 1] - corpus.starts[rows]
    return [mel[:length] for mel, length in zip(said, lengths, strict=True)]


def _read_wav(path: Path, frames: int) -> npt.NDArray[np.int16]:
    wav = np.load(path)["wav"]
    return np.asarray(np.pad(wav, (0, HOP_LENGTH))[: frames * HOP_LENGTH], np.int16)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Store recordings beside the synthesizer's mels of them.")
    parser.add_argument("--source", type=Path, action="append", required=True)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--synthesizer", type=Path, required=True, help="a checkpoint, or a bundle's weights")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=700)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    network = start_network(options.synthesizer).eval()
    corpus = Corpus.load(options.corpus)
    print(write_pairs(options.source, corpus, network, options.out, options.limit, options.seed), "pairs")


if __name__ == "__main__":
    main()
