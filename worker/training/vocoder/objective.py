"""How far predicted parts are from the true ones."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from worker.training.vocoder.network import pitch_centres

WARM_UP = 24
"""Frames at the start of a crop that are not judged: the network has not seen what came before."""

_PITCH_BLUR_BINS = 1.2
_AUDIBLE = -9.0


@dataclass(frozen=True, slots=True)
class Losses:
    """Means over the judged frames: pitch (nats), voicing (nats), harmonic and noise levels (neper)."""

    pitch: Tensor
    voicing: Tensor
    harmonic: Tensor
    noise: Tensor

    def values(self) -> list[float]:
        """Pitch, voicing, harmonic, noise as numbers."""
        return [float(loss.detach()) for loss in (self.pitch, self.voicing, self.harmonic, self.noise)]

    def total(self) -> Tensor:
        """The weighted sum that is minimised."""
        return 0.15 * self.pitch + 0.5 * self.voicing + self.harmonic + self.noise


def compare_parts(
    predicted: tuple[Tensor, Tensor, Tensor, Tensor], f0: Tensor, harmonic: Tensor, noise: Tensor
) -> Losses:
    """Losses of pitch logits [B, T, 160], voicing logits [B, T] and levels [B, 2 T, 128]."""
    logits, voicing, tones, hiss = (part.float() for part in predicted)
    judged = torch.zeros_like(f0)
    judged[:, WARM_UP:] = 1
    voiced = (f0 > 0).float() * judged
    spoken = (f0 > 0).float()
    loud = (harmonic.amax(-1).maximum(noise.amax(-1)) > _AUDIBLE).float()
    twice = judged.repeat_interleave(2, dim=1) * (0.25 + 0.75 * loud)
    weight = twice[:, ::2]
    return Losses(
        pitch=average(pitch_entropy(logits, f0), voiced),
        voicing=average(functional.binary_cross_entropy_with_logits(voicing, spoken, reduction="none"), weight),
        harmonic=average((tones - harmonic).abs().mean(-1), voiced.repeat_interleave(2, dim=1)),
        noise=average((hiss - noise).abs().mean(-1), twice),
    )


def pitch_entropy(logits: Tensor, f0: Tensor) -> Tensor:
    """Cross entropy [B, T] against a bell around the true pitch bin."""
    centres = pitch_centres()
    distance = (centres - torch.log(f0.clamp_min(1.0))[..., None]) / (centres[1] - centres[0])
    bell = torch.softmax(-0.5 * (distance / _PITCH_BLUR_BINS) ** 2, dim=-1)
    return -(bell * torch.log_softmax(logits, dim=-1)).sum(-1)


def average(values: Tensor, weight: Tensor) -> Tensor:
    """Weighted mean."""
    return (values * weight).sum() / weight.sum().clamp_min(1.0)
