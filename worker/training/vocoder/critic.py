"""The adversary of the vocoder: tells speech from what was synthesized, by log spectrograms of three resolutions.

Multi-resolution discriminators in the manner of UnivNet (Jang et al., 2021) and Vocos (Siuzdak, 2023), small enough for
one core, and deaf above 8 kHz, where many recordings hold nothing.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from worker.training.rivalry import Judgement

_CHANNELS = (1, 32, 64, 96, 96)
_SLOPE = 0.2
_TRANSFORMS = ((480, 120), (960, 240), (240, 60))
_HEARD = 3
"""Of a transform one in so many bins is looked at, from 0 to 8 kHz."""


class SpectrumCritic(nn.Module):
    """One resolution."""

    def __init__(self, transform: int, hop: int) -> None:
        super().__init__()
        self.transform, self.hop = transform, hop
        self.window: Tensor
        self.register_buffer("window", torch.hann_window(transform))
        self.layers = nn.ModuleList(
            nn.utils.parametrizations.spectral_norm(
                nn.Conv2d(inner, outer, (5, 3), stride=(2, 1 if number == 0 else 2), padding=(2, 1))
            )
            for number, (inner, outer) in enumerate(pairwise(_CHANNELS))
        )
        self.score = nn.Conv2d(_CHANNELS[-1], 1, 3, padding=1)

    def forward(self, wave: Tensor) -> Judgement:
        """Judge waves [B, N] at 24 kHz."""
        spectrum = torch.stft(wave, self.transform, self.hop, window=self.window, center=False, return_complex=True)[
            :, : self.transform // _HEARD
        ]
        hidden, features = torch.log(spectrum.abs() + 1e-3).unsqueeze(1) / 2, []
        for layer in self.layers:
            hidden = functional.leaky_relu(layer(hidden), _SLOPE)
            features.append(hidden)
        return self.score(hidden), features


class Critic(nn.Module):
    """All of them."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(SpectrumCritic(transform, hop) for transform, hop in _TRANSFORMS)

    def forward(self, wave: Tensor) -> list[Judgement]:
        """Judge waves [B, N] at 24 kHz."""
        return [part(wave) for part in self.parts]
