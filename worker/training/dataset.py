"""Packed training data of the synthesizer: log-mels, phoneme ids, their spans, and speaker embeddings.

    python -m worker.training.dataset --source DIR [--source DIR ...] --encoder pretrained.pt --out DIR

A source is a folder of utterances `*.npz` with `wav` (int16 at 24 kHz), `ids`, `durations` (in `unit` samples, 600
when absent), and `speaker`. With `--full-band CORPUS`, recordings that lack the top bands get them from a model of
that corpus.
"""

import argparse
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soxr
import torch
from torch import nn

from worker.sv2tts.encoder import partial_mels, raise_volume
from worker.sv2tts.mel import log_mel
from worker.training.bandwidth import BandModel
from worker.training.render import DURATION_UNIT, SAMPLE_RATE

Array = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

_REFERENCE_SECONDS = 5.0
_EMBEDDINGS = 6


class SpeakerNetwork(nn.Module):
    """The GE2E encoder (three LSTM layers of 256), to load Resemblyzer's published weights into."""

    def __init__(self, weights: Path) -> None:
        super().__init__()
        self.lstm = nn.LSTM(40, 256, 3, batch_first=True)
        self.linear = nn.Linear(256, 256)
        state = torch.load(weights, map_location="cpu", weights_only=True)["model_state"]
        self.load_state_dict({name: state[name] for name in self.state_dict()})

    @torch.inference_mode()
    def embed(self, wav: Array) -> Array:
        """Unit float32[256] of float32[N] at 24 kHz."""
        samples = soxr.resample(wav, SAMPLE_RATE, 16000).astype(np.float32)
        mels = torch.from_numpy(partial_mels(raise_volume(samples)))
        hidden = self.lstm(mels)[1][0][-1]
        partials = nn.functional.normalize(torch.relu(self.linear(hidden)), dim=1)
        return np.asarray(nn.functional.normalize(partials.mean(dim=0), dim=0).numpy(), np.float32)


@dataclass(frozen=True, slots=True)
class Corpus:
    """Packed utterances; `starts` and `symbol_starts` [U + 1] delimit them in `mels` [frames, 80] and in `ids` and
    `ends` (the sample, from the utterance's start, where a symbol ends); `speakers` [U] are rows of `embeddings`
    [S, E, 256], which holds E views of every speaker."""

    mels: npt.NDArray[np.float16]
    starts: Integers
    ids: Integers
    ends: Integers
    symbol_starts: Integers
    speakers: Integers
    embeddings: Array

    @classmethod
    def load(cls, root: Path) -> "Corpus":
        """Open the arrays that `write_corpus` wrote; the mels stay on disk."""
        arrays = np.load(root / "corpus.npz")
        mels = np.load(root / "mels.npy", mmap_mode="r")
        return cls(mels, *(arrays[name] for name in _NAMES))

    def __len__(self) -> int:
        return len(self.speakers)


_NAMES = ("starts", "ids", "ends", "symbol_starts", "speakers", "embeddings")


def _embed_speaker(network: SpeakerNetwork, wavs: Sequence[Array], rng: np.random.Generator) -> Array:
    """Views of one speaker, each of a few seconds of utterances drawn at random."""
    views = []
    for _ in range(_EMBEDDINGS):
        parts, seconds = [], 0.0
        for index in rng.permutation(len(wavs)):
            parts.append(wavs[index])
            seconds += len(wavs[index]) / SAMPLE_RATE
            if seconds > _REFERENCE_SECONDS:
                break
        views.append(network.embed(np.concatenate(parts)))
    return np.stack(views)


@dataclass(frozen=True, slots=True)
class _Utterance:
    mels: npt.NDArray[np.floating]
    ids: Integers
    ends: Integers


def _read_speaker(paths: Sequence[Path], bands: BandModel | None) -> tuple[list[_Utterance], list[Array]]:
    """The utterances of one speaker, and their audio."""
    utterances, wavs = [], []
    for path in paths:
        stored = np.load(path)
        unit = int(stored["unit"]) if "unit" in stored else DURATION_UNIT
        wavs.append((stored["wav"] / 32768).astype(np.float32))
        utterances.append(_Utterance(log_mel(wavs[-1]), stored["ids"], np.cumsum(stored["durations"]) * unit))
    if bands is not None:
        together = bands.extend(np.concatenate([utterance.mels for utterance in utterances]))
        cuts = np.cumsum([len(utterance.mels) for utterance in utterances])[:-1]
        parts = zip(utterances, np.split(together, cuts), strict=True)
        utterances = [_Utterance(mels, utterance.ids, utterance.ends) for utterance, mels in parts]
    return utterances, wavs


def write_corpus(sources: Sequence[Path], encoder: Path, out: Path, bands: BandModel | None = None) -> int:
    """Pack the utterances of `sources` into `out`; their number."""
    network, rng = SpeakerNetwork(encoder), np.random.default_rng(0)
    by_speaker: dict[tuple[str, str], list[Path]] = defaultdict(list)
    for source in sources:
        for path in sorted(source.glob("*.npz")):
            by_speaker[source.name, str(np.load(path)["speaker"])].append(path)
    packed: list[_Utterance] = []
    speakers, embeddings = [], []
    for number, paths in enumerate(by_speaker.values()):
        utterances, wavs = _read_speaker(paths, bands)
        packed += [replace(utterance, mels=utterance.mels.astype(np.float16)) for utterance in utterances]
        speakers += [number] * len(utterances)
        embeddings.append(_embed_speaker(network, wavs, rng))
    _save(packed, speakers, embeddings, out)
    return len(packed)


def _save(packed: Sequence[_Utterance], speakers: Sequence[int], embeddings: Sequence[Array], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    np.save(out / "mels.npy", np.concatenate([utterance.mels for utterance in packed]))
    np.savez(
        out / "corpus.npz",
        starts=np.cumsum([0, *(len(utterance.mels) for utterance in packed)]),
        ids=np.concatenate([utterance.ids for utterance in packed]),
        ends=np.concatenate([utterance.ends for utterance in packed]),
        symbol_starts=np.cumsum([0, *(len(utterance.ids) for utterance in packed)]),
        speakers=np.asarray(speakers),
        embeddings=np.stack(embeddings),
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Pack rendered or aligned speech for the synthesizer's training.")
    parser.add_argument("--source", type=Path, action="append", required=True)
    parser.add_argument("--encoder", type=Path, required=True, help="Resemblyzer's pretrained.pt")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--full-band", type=Path, help="a packed corpus to guess missing bands from")
    options = parser.parse_args()
    torch.set_num_threads(1)
    bands = BandModel.fit(Corpus.load(options.full_band).mels) if options.full_band else None
    print(write_corpus(options.source, options.encoder, options.out, bands), "utterances")


if __name__ == "__main__":
    main()
