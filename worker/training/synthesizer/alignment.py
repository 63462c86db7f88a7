"""Known durations as attention: what the energies are trained against, and the window they are trained in."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from worker.training.synthesizer.network import WINDOW_AHEAD, WINDOW_BEHIND


def overlap_spans(ends: Tensor, steps: int, step_samples: int, offset: int) -> Tensor:
    """Alignment [B, S, N]: the share of each decoder step that lies in each symbol.

    `ends` [B, N] are the samples where symbols end, the last one of each row beyond the last step; `offset` is how
    long before its first frame's centre a step begins.
    """
    starts = functional.pad(ends, (1, 0))[:, :-1]
    low = torch.arange(steps, device=ends.device) * step_samples - offset
    overlap = torch.minimum(ends[:, None], (low + step_samples)[None, :, None])
    overlap = overlap - torch.maximum(starts[:, None], low[None, :, None])
    shares = overlap.clamp(min=0).float()
    return shares / shares.sum(dim=2, keepdim=True).clamp(min=1)


def first_symbols(alignment: Tensor) -> Tensor:
    """The position [B, S] before each step: the first symbol that holds a tenth of the step before it."""
    reached = (alignment.cumsum(dim=2) > 0.1).float().argmax(dim=2)
    return functional.pad(reached, (1, 0))[:, :-1]


@dataclass(frozen=True, slots=True)
class Window:
    """Where the attention of each step may be: symbol numbers `places` [B, S, W] (clamped into the row) and `inside`
    [B, S, W], false where a place is no symbol of the row."""

    places: Tensor
    inside: Tensor


def window_of(positions: Tensor, lengths: Tensor) -> Window:
    """The window around positions [B, S] of rows of `lengths` [B] symbols."""
    offsets = torch.arange(-WINDOW_BEHIND, WINDOW_AHEAD + 1, device=positions.device)
    places = positions.unsqueeze(-1) + offsets
    inside = (places >= 0) & (places < lengths[:, None, None])
    return Window(places.clamp(min=0), inside)


def gather_locations(previous: Tensor, total: Tensor, places: Tensor) -> Tensor:
    """Location features [B, S, W, 6]: the last and the summed attention [B, S, N] at each place and its neighbours."""
    parts = []
    for weights in (previous, total):
        padded = functional.pad(weights, (1, WINDOW_AHEAD + 2))
        parts += [torch.gather(padded, 2, places + shift) for shift in (0, 1, 2)]
    return torch.stack(parts, dim=-1)


def gather_keys(keys: Tensor, places: Tensor) -> Tensor:
    """[B, S, W, attention] of keys [B, N, attention]."""
    batch, steps, width = places.shape
    index = places.clamp(max=keys.shape[1] - 1).reshape(batch, -1, 1).expand(-1, -1, keys.shape[2])
    return torch.gather(keys, 1, index).reshape(batch, steps, width, -1)
