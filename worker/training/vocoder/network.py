"""The vocoder network: log-mel frames in, parts of speech out, one frame for one frame.

A ConvNeXt trunk (Liu et al., "A ConvNet for the 2020s", 2022) at frame rate, in the manner of Vocos (Siuzdak, 2023),
causal but for four frames of look-ahead: two in the first convolution and one in each of the first two blocks. Every
convolution keeps its last inputs in a cache, so that a stream of pieces gives what the whole gives. There are two
sizes of it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from worker.sv2tts.envelope import KNOTS, NARROW_KNOTS, knot_frequencies
from worker.sv2tts.mel import FMAX, N_MELS, hz_to_mel, mel_to_hz
from worker.training.vocoder.parts import PITCH_LEAST, PITCH_MOST

KERNEL = 7
AHEAD_INPUT = 2
PITCH_BINS = 160
PITCH_REACH = 4
ENVELOPES_PER_FRAME = 2

_PAST = KERNEL - 1
_MEL_MEAN, _MEL_SPREAD = -5.0, 2.5


@dataclass(frozen=True, slots=True)
class Size:
    """How large a network is: channels of the trunk and within a block, frames of look-ahead of each block, and the
    knots of its envelopes."""

    channels: int
    hidden: int
    ahead: tuple[int, ...]
    knots: int

    def cache_shapes(self) -> list[tuple[int, int]]:
        """Frames and channels of the caches: one of mel frames, then one a block."""
        return [(_PAST, N_MELS), *((_PAST, self.channels) for _ in self.ahead)]

    def empty_caches(self, batch: int) -> list[Tensor]:
        """Caches of a stream that has not begun."""
        return [torch.zeros(batch, frames, width) for frames, width in self.cache_shapes()]


FULL = Size(256, 768, (1, 1, 0, 0, 0, 0), KNOTS)
NARROW = Size(128, 512, (1, 1, 0, 0), NARROW_KNOTS)
"""For the 16 kHz vocoder."""

LOOK_AHEAD = AHEAD_INPUT + sum(FULL.ahead)


def pitch_centres() -> Tensor:
    """Logarithms of the pitches float32[160] in Hz that the pitch bins stand for."""
    return torch.linspace(math.log(PITCH_LEAST), math.log(PITCH_MOST), PITCH_BINS)


def mel_to_knots() -> Tensor:
    """Matrix float32[80, 128] that interpolates mel bands to knots."""
    edges = torch.linspace(0, float(hz_to_mel(np.array([FMAX]))[0]), N_MELS + 2, dtype=torch.float64)
    centres = torch.from_numpy(mel_to_hz(edges.numpy()))[1:-1]
    knots = torch.from_numpy(knot_frequencies()).double().clamp(float(centres[0]), float(centres[-1]))
    after = torch.searchsorted(centres, knots).clamp(1, N_MELS - 1)
    weight = ((knots - centres[after - 1]) / (centres[after] - centres[after - 1])).clamp(0, 1)
    matrix = torch.zeros(N_MELS, KNOTS, dtype=torch.float64)
    matrix[after - 1, torch.arange(KNOTS)] += 1 - weight
    matrix[after, torch.arange(KNOTS)] += weight
    return matrix.float()


class Block(nn.Module):
    """A depthwise convolution over time and a two-layer perceptron, with a residual path."""

    def __init__(self, size: Size, ahead: int) -> None:
        super().__init__()
        self.ahead = ahead
        self.mix = nn.Conv1d(size.channels, size.channels, KERNEL, groups=size.channels)
        self.norm = nn.LayerNorm(size.channels)
        self.widen = nn.Linear(size.channels, size.hidden)
        self.narrow = nn.Linear(size.hidden, size.channels)
        self.scale = nn.Parameter(torch.full((size.channels,), 1 / len(size.ahead)))

    def forward(self, inputs: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        """[B, T, C] and the last inputs [B, 6, C] -> outputs [B, T, C], `ahead` frames late, and the new cache."""
        joined = torch.cat([cache, inputs], dim=1)
        mixed = self.norm(self.mix(joined.transpose(1, 2)).transpose(1, 2))
        update = self.narrow(functional.gelu(self.widen(mixed), approximate="tanh"))
        start = _PAST - self.ahead
        return joined[:, start : start + inputs.shape[1]] + self.scale * update, joined[:, -_PAST:]


class VocoderNetwork(nn.Module):
    """Predicts pitch, voicing and envelopes; see :meth:`forward`."""

    def __init__(self, size: Size = FULL) -> None:
        super().__init__()
        self.size = size
        self.enter = nn.Conv1d(N_MELS, size.channels, KERNEL)
        self.blocks = nn.ModuleList([Block(size, ahead) for ahead in size.ahead])
        self.norm = nn.LayerNorm(size.channels)
        self.pitch = nn.Linear(size.channels, PITCH_BINS)
        self.voicing = nn.Linear(size.channels, 1)
        self.envelopes = nn.Linear(size.channels, 2 * ENVELOPES_PER_FRAME * size.knots)
        self.spread: Tensor
        self.centres: Tensor
        self.register_buffer("spread", mel_to_knots()[:, : size.knots].contiguous(), persistent=False)
        self.register_buffer("centres", pitch_centres(), persistent=False)

    def forward(self, mel: Tensor, caches: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor, list[Tensor]]:
        """Log-mel [B, T, 80] and caches -> pitch logits [B, T, 160], voicing logits [B, T], harmonic and noise
        levels [B, 2 T, knots] every 5 ms, new caches; everything LOOK_AHEAD frames late."""
        joined = torch.cat([caches[0], mel], dim=1)
        hidden = self.enter((joined - _MEL_MEAN).transpose(1, 2) / _MEL_SPREAD).transpose(1, 2)
        kept = [joined[:, -_PAST:]]
        for block, cache in zip(self.blocks, caches[1:], strict=True):
            hidden, last = block(hidden, cache)
            kept.append(last)
        hidden = self.norm(hidden)
        start, knots = _PAST - LOOK_AHEAD, self.size.knots
        base = joined[:, start : start + mel.shape[1]] @ self.spread
        levels = base.repeat(1, 1, 2 * ENVELOPES_PER_FRAME) + 4 * self.envelopes(hidden)
        pairs = levels.reshape(mel.shape[0], -1, 2 * knots)
        return self.pitch(hidden), self.voicing(hidden)[..., 0], pairs[..., :knots], pairs[..., knots:], kept

    def decode_pitch(self, logits: Tensor) -> Tensor:
        """Pitch [B, T] in Hz: the mean of the log-pitch bins around the likeliest one."""
        steps = torch.arange(PITCH_BINS)
        near = (steps - logits.argmax(dim=-1, keepdim=True)).abs() <= PITCH_REACH
        weight = torch.exp(logits - logits.amax(dim=-1, keepdim=True)) * near
        return torch.exp((weight * self.centres).sum(-1) / weight.sum(-1))


def empty_caches(batch: int) -> list[Tensor]:
    """Caches of a stream of the full network that has not begun."""
    return FULL.empty_caches(batch)
