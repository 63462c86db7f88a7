"""Batches of like length, with the alignment of every decoder step."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from worker.sv2tts.mel import FLOOR, HOP_LENGTH
from worker.training.dataset import Corpus
from worker.training.synthesizer.alignment import overlap_spans
from worker.training.synthesizer.network import FRAMES_PER_STEP

_POOL = 24
_CLOSING_STEPS = 2
"""Steps of digital silence after an utterance, spent on the last symbol: they teach the decoder to rest there."""

_FAR = 1 << 40


@dataclass(frozen=True, slots=True)
class Batch:
    """`ids` [B, N], `lengths` [B], `mels` [B, S * 4, 80] not normalised, `steps` [B] (valid ones of S),
    `alignment` [B, S, N], `embedding` [B, 256], `quality` [B] on the scale of mean opinion scores."""

    ids: Tensor
    lengths: Tensor
    mels: Tensor
    steps: Tensor
    alignment: Tensor
    embedding: Tensor
    quality: Tensor


def draw_embedding(views: np.ndarray, rng: np.random.Generator, noise: float) -> np.ndarray:
    """A unit vector near a speaker's views [E, 256]: two of them mixed, and a little noise."""
    first, second = views[rng.integers(len(views), size=2)]
    mixed = first + rng.random() * (second - first)
    mixed = mixed + rng.standard_normal(mixed.shape) * noise * rng.random() * np.linalg.norm(mixed)
    return np.asarray(mixed / np.linalg.norm(mixed), np.float32)


def collate(corpus: Corpus, rows: np.ndarray, rng: np.random.Generator, noise: float = 0.03) -> Batch:
    """The utterances `rows` of a corpus as one batch."""
    spans = [slice(corpus.symbol_starts[row], corpus.symbol_starts[row + 1]) for row in rows]
    frames = corpus.starts[rows + 1] - corpus.starts[rows]
    steps = -(-frames // FRAMES_PER_STEP) + _CLOSING_STEPS
    longest = max(span.stop - span.start for span in spans)
    ids = np.zeros((len(rows), longest), np.int64)
    ends = np.full((len(rows), longest), _FAR, np.int64)
    mels = np.full((len(rows), int(steps.max()) * FRAMES_PER_STEP, 80), np.log(FLOOR), np.float32)
    for index, (row, span) in enumerate(zip(rows, spans, strict=True)):
        ids[index, : span.stop - span.start] = corpus.ids[span]
        ends[index, : span.stop - span.start - 1] = corpus.ends[span][:-1]
        mels[index, : frames[index]] = corpus.mels[corpus.starts[row] : corpus.starts[row + 1]]
    return Batch(
        ids=torch.from_numpy(ids),
        lengths=torch.tensor([span.stop - span.start for span in spans]),
        mels=torch.from_numpy(mels),
        steps=torch.from_numpy(steps),
        alignment=overlap_spans(
            torch.from_numpy(ends), int(steps.max()), FRAMES_PER_STEP * HOP_LENGTH, HOP_LENGTH // 2
        ),
        embedding=torch.from_numpy(
            np.stack([draw_embedding(corpus.embeddings[corpus.speakers[row]], rng, noise) for row in rows])
        ),
        quality=torch.from_numpy(corpus.quality[corpus.speakers[rows]].astype(np.float32)),
    )


def _iterate_corpus(corpus: Corpus, size: int, rng: np.random.Generator) -> Iterator[Batch]:
    while True:
        rows = rng.choice(len(corpus), size=min(len(corpus), size * _POOL), replace=False)
        rows = rows[np.argsort(corpus.starts[rows + 1] - corpus.starts[rows], kind="stable")]
        groups = [rows[low : low + size] for low in range(0, len(rows), size)]
        for group in rng.permutation(len(groups)):
            yield collate(corpus, groups[group], rng)


def iterate_batches(corpora: list[tuple[Corpus, float]], size: int, rng: np.random.Generator) -> Iterator[Batch]:
    """Endless batches of `size`; each corpus comes with the share of the batches that are drawn from it."""
    shares = np.asarray([share for _, share in corpora]) / sum(share for _, share in corpora)
    streams = [_iterate_corpus(corpus, size, rng) for corpus, _ in corpora]
    while True:
        yield next(streams[int(rng.choice(len(streams), p=shares))])
