"""What a network and its adversary minimise: least-squares losses (Mao et al., 2017) and feature matching (Larsen et
al., 2016)."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

Judgement = tuple[Tensor, list[Tensor]]
"""Scores [B, ...], 1 for speech and 0 for what is not, and the features [B, C, ...] of each layer."""


def adversary_loss(real: Sequence[Judgement], made: Sequence[Judgement]) -> Tensor:
    """What the adversary minimises."""
    losses = [
        (1 - of_real[0].float()).square().mean() + of_made[0].float().square().mean()
        for of_real, of_made in zip(real, made, strict=True)
    ]
    return torch.stack(losses).mean()


def deception_loss(made: Sequence[Judgement]) -> Tensor:
    """What the synthesizer minimises to pass for speech."""
    return torch.stack([(1 - scores.float()).square().mean() for scores, _ in made]).mean()


def matching_loss(real: Sequence[Judgement], made: Sequence[Judgement]) -> Tensor:
    """Distance between what the adversary sees in speech and in what was made, relative to its size."""
    losses = []
    for (_, of_real), (_, of_made) in zip(real, made, strict=True):
        for seen, wanted in zip(of_made, of_real, strict=True):
            target = wanted.detach().float()
            losses.append(functional.l1_loss(seen.float(), target) / (target.abs().mean() + 1e-4))
    return torch.stack(losses).mean()
