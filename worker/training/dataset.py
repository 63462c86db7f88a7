"""Packed training data of the synthesizer: log-mels, phoneme ids, their spans, and speaker embeddings.

    python -m worker.training.dataset --source DIR [--source DIR ...] --encoder encoder.onnx --out DIR

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
from onnxruntime import InferenceSession, SessionOptions

from worker.errors import TrainingError
from worker.sv2tts.encoder import ENCODER_RATE, embed_with
from worker.sv2tts.mel import log_mel
from worker.training.bandwidth import BandModel
from worker.training.render import DURATION_UNIT, SAMPLE_RATE

Array = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

_REFERENCE_SECONDS = 5.0
_EMBEDDINGS = 6


class SpeakerViews:
    """Embeds speech with the GE2E encoder: a bundle's graph, or the weights in Resemblyzer's `pretrained.pt`."""

    def __init__(self, encoder: Path) -> None:
        options = SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = InferenceSession(_read_graph(encoder), options, providers=["CPUExecutionProvider"])

    def embed(self, wav: Array) -> Array:
        """Unit float32[256] of float32[N] at 24 kHz."""
        return embed_with(self._session, soxr.resample(wav, SAMPLE_RATE, ENCODER_RATE).astype(np.float32))


def _read_graph(encoder: Path) -> bytes:
    if encoder.suffix == ".onnx":
        return encoder.read_bytes()
    from worker.training.encoder_export import build_model, read_weights

    return bytes(build_model(read_weights(encoder)).SerializeToString())


@dataclass(frozen=True, slots=True)
class Corpus:
    """Packed utterances; `starts` and `symbol_starts` [U + 1] delimit them in `mels` [frames, 80] and in `ids` and
    `ends` (the sample, from the utterance's start, where a symbol ends); `speakers` [U] are rows of `embeddings`
    [S, E, 256], which holds E views of every speaker; `quality` [S] is how natural each one's recordings sound, on
    the scale of 1 to 5 of mean opinion scores."""

    mels: npt.NDArray[np.float16]
    starts: Integers
    ids: Integers
    ends: Integers
    symbol_starts: Integers
    speakers: Integers
    embeddings: Array
    quality: Array

    @classmethod
    def load(cls, root: Path) -> "Corpus":
        """Open the arrays that `write_corpus` and `quality` wrote; the mels stay on disk."""
        arrays = np.load(root / INDEX)
        mels = np.load(root / "mels.npy", mmap_mode="r")
        scores = root / QUALITY
        found = len(arrays["embeddings"])
        quality = np.load(scores) if scores.exists() else np.full(found, FAIR_QUALITY, np.float32)
        return cls(mels=mels, quality=quality, **{name: arrays[name] for name in _NAMES})

    def __len__(self) -> int:
        return len(self.speakers)


INDEX = "corpus.npz"
QUALITY = "quality.npy"
FAIR_QUALITY = 3.5
"""What is assumed of speakers that nobody scored."""

_NAMES = ("starts", "ids", "ends", "symbol_starts", "speakers", "embeddings")


def _embed_speaker(encoder: SpeakerViews, wavs: Sequence[Array], rng: np.random.Generator) -> Array:
    """Views of one speaker, each of a few seconds of utterances drawn at random."""
    views = []
    for _ in range(_EMBEDDINGS):
        parts, seconds = [], 0.0
        for index in rng.permutation(len(wavs)):
            parts.append(wavs[index])
            seconds += len(wavs[index]) / SAMPLE_RATE
            if seconds > _REFERENCE_SECONDS:
                break
        views.append(encoder.embed(np.concatenate(parts)))
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


def group_speakers(sources: Sequence[Path]) -> list[list[Path]]:
    """The utterances of each speaker, in the order in which a corpus numbers them."""
    by_speaker: dict[tuple[str, str], list[Path]] = defaultdict(list)
    for source in sources:
        for path in sorted(source.glob("*.npz")):
            by_speaker[source.name, str(np.load(path)["speaker"])].append(path)
    return list(by_speaker.values())


def write_corpus(sources: Sequence[Path], encoder: Path, out: Path, bands: BandModel | None = None) -> int:
    """Pack the utterances of `sources` into `out`; their number. Raises TrainingError when there are none."""
    views, rng = SpeakerViews(encoder), np.random.default_rng(0)
    packed: list[_Utterance] = []
    speakers, embeddings = [], []
    for number, paths in enumerate(group_speakers(sources)):
        utterances, wavs = _read_speaker(paths, bands)
        packed += [replace(utterance, mels=utterance.mels.astype(np.float16)) for utterance in utterances]
        speakers += [number] * len(utterances)
        embeddings.append(_embed_speaker(views, wavs, rng))
    if not packed:
        raise TrainingError(f"{' and '.join(map(str, sources))} hold no utterance: nothing there could be aligned")
    _save(packed, speakers, embeddings, out)
    return len(packed)


def _save(packed: Sequence[_Utterance], speakers: Sequence[int], embeddings: Sequence[Array], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    np.save(out / "mels.npy", np.concatenate([utterance.mels for utterance in packed]))
    part = out / "corpus.part"
    with part.open("wb") as file:
        np.savez(
            file,
            starts=np.cumsum([0, *(len(utterance.mels) for utterance in packed)]),
            ids=np.concatenate([utterance.ids for utterance in packed]),
            ends=np.concatenate([utterance.ends for utterance in packed]),
            symbol_starts=np.cumsum([0, *(len(utterance.ids) for utterance in packed)]),
            speakers=np.asarray(speakers),
            embeddings=np.stack(embeddings),
        )
    # Whoever finds this name finds a whole corpus.
    part.rename(out / INDEX)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Pack rendered or aligned speech for the synthesizer's training.")
    parser.add_argument("--source", type=Path, action="append", required=True)
    parser.add_argument(
        "--encoder", type=Path, required=True, help="a bundle's encoder.onnx or Resemblyzer's pretrained.pt"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--full-band", type=Path, help="a packed corpus to guess missing bands from")
    options = parser.parse_args()
    bands = BandModel.fit(Corpus.load(options.full_band).mels) if options.full_band else None
    print(write_corpus(options.source, options.encoder, options.out, bands), "utterances")


if __name__ == "__main__":
    main()
