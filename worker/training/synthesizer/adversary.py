"""The adversary of the synthesizer: tells mels of speech from mels that regression has flattened.

A few strided 2-d convolutions over time and frequency, one score a place, once over fine and once over coarse frames,
each with a term for the speaker (the projection discriminator of Miyato and Koyama, 2018). What both sides minimise is
in `worker.training.rivalry`.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from worker.training.rivalry import Judgement

_CHANNELS = (1, 32, 64, 128, 128)
_SLOPE = 0.2


class MelJudge(nn.Module):
    """One scale. Spectral normalisation keeps it from running away from the synthesizer."""

    def __init__(self, voice: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.utils.parametrizations.spectral_norm(nn.Conv2d(inner, outer, (3, 5), stride=2, padding=(1, 2)))
            for inner, outer in pairwise(_CHANNELS)
        )
        self.score = nn.Conv2d(_CHANNELS[-1], 1, 3, padding=1)
        self.voice = nn.Linear(voice, _CHANNELS[-1], bias=False)

    def forward(self, mels: Tensor, voice: Tensor) -> Judgement:
        """Judge mels [B, T, 80] of voices [B, voice]."""
        hidden, features = mels.unsqueeze(1), []
        for layer in self.layers:
            hidden = functional.leaky_relu(layer(hidden), _SLOPE)
            features.append(hidden)
        fit = (hidden * self.voice(voice)[:, :, None, None]).sum(dim=1, keepdim=True) / hidden.shape[1] ** 0.5
        return self.score(hidden) + fit, features


class Adversary(nn.Module):
    """Judges at the frame rate and at a quarter of it."""

    def __init__(self, embedding: int = 256) -> None:
        super().__init__()
        self.fine, self.coarse = MelJudge(embedding), MelJudge(embedding)

    def forward(self, mels: Tensor, embedding: Tensor) -> list[Judgement]:
        """Judge normalised mels [B, T, 80] of speakers with unit embeddings [B, 256]."""
        voice = embedding * 16.0
        slow = functional.avg_pool1d(mels.transpose(1, 2), 4).transpose(1, 2)
        return [self.fine(mels, voice), self.coarse(slow, voice)]


def pick_rows(judged: Sequence[Judgement], rows: Tensor) -> list[Judgement]:
    """The judgements of some rows."""
    return [(scores[rows], [feature[rows] for feature in features]) for scores, features in judged]


def crop_valid(frames: Sequence[Tensor], lengths: Tensor, size: int) -> tuple[list[Tensor], Tensor]:
    """The same random stretch of `size` frames of each row of several [B, T, 80], from rows with at least that many;
    also the numbers of these rows."""
    rows = torch.nonzero(lengths >= size).flatten()
    starts = (torch.rand(len(rows)) * (lengths[rows] - size + 1)).long()
    index = (starts[:, None] + torch.arange(size)).unsqueeze(-1).expand(-1, -1, frames[0].shape[2])
    return [torch.gather(frame[rows], 1, index) for frame in frames], rows
