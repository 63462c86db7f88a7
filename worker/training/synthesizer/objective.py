"""The loss of a batch: frames before and after the post-net, and the attention's energies."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from worker.training.synthesizer.alignment import (
    Window,
    first_symbols,
    gather_keys,
    gather_locations,
    window_of,
)
from worker.training.synthesizer.batches import Batch
from worker.training.synthesizer.network import FRAMES_PER_STEP, Tacotron

_ATTENTION_WEIGHT = 0.3


@dataclass(frozen=True, slots=True)
class Losses:
    """Scalars; `total` is what is minimised."""

    total: Tensor
    frames: Tensor
    refined: Tensor
    attention: Tensor


def feed_back(mels: Tensor, noise: float) -> Tensor:
    """The frame [B, S, 80] that each step is fed: the last of the step before, with noise, sometimes none at all.

    Without dropout in service the decoder must not lean on a clean history, so it never gets one in training.
    """
    last = functional.pad(mels[:, FRAMES_PER_STEP - 1 :: FRAMES_PER_STEP], (0, 0, 1, 0))[:, :-1]
    level = noise * torch.rand(last.shape[0], 1, 1)
    kept = (torch.rand(last.shape[:2]) > 0.05).unsqueeze(-1)
    return (last + level * torch.randn_like(last)) * kept


def _blur(alignment: Tensor) -> Tensor:
    """The alignment as service may see it: each row leaks a random share to its neighbours."""
    leak = 0.3 * torch.rand(alignment.shape[0], 1, 1)
    ahead, behind = functional.pad(alignment, (1, 0))[..., :-1], functional.pad(alignment, (0, 1))[..., 1:]
    return (1 - leak) * alignment + leak / 2 * (ahead + behind)


def attention_loss(network: Tacotron, queries: Tensor, memory: Tensor, batch: Batch, valid: Tensor) -> Tensor:
    """Cross-entropy of the energies against the known alignment, inside windows that are up to one symbol off."""
    seen = _blur(batch.alignment)
    previous = functional.pad(seen, (0, 0, 1, 0))[:, :-1]
    total = previous.cumsum(dim=1) * (1 + 0.1 * torch.randn(seen.shape[0], 1, seen.shape[2]))
    positions = first_symbols(batch.alignment)
    jitter = torch.randint(-1, 2, positions.shape)
    window: Window = window_of((positions + jitter).clamp(min=0), batch.lengths)
    keys = gather_keys(network.attention.key(memory), window.places)
    energies = network.attention(queries, keys, gather_locations(previous, total, window.places))
    log_weights = functional.log_softmax(energies.masked_fill(~window.inside, -1e4), dim=-1)
    target = torch.gather(functional.pad(batch.alignment, (0, 16)), 2, window.places) * window.inside
    return -(target * log_weights).sum(dim=-1)[valid].mean()


@dataclass(frozen=True, slots=True)
class Attempt:
    """A batch as the network says it: `truth` and what it made of it before (`frames`) and after the post-net
    (`refined`), normalised [B, T, 80], the loss of its attention, `spoken` [B, T], false past the ends, and the
    `embedding` [B, 256] it spoke with: not that of the truth in rows that are a `stranger` [B]'s."""

    truth: Tensor
    frames: Tensor
    refined: Tensor
    attention: Tensor
    spoken: Tensor
    embedding: Tensor
    stranger: Tensor


def meet_strangers(embedding: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Embeddings [B, 256], a share of them mixed with another row's, and which ones [B]; never the first.

    There are far fewer people in the data than in the world; between two voices lies a third.
    """
    stranger = torch.rand(len(embedding)) < share
    stranger[0] = False
    weight = 0.3 + 0.4 * torch.rand(len(embedding), 1)
    mixed = torch.lerp(embedding, embedding[torch.randperm(len(embedding))], weight)
    return torch.where(stranger[:, None], functional.normalize(mixed, dim=1), embedding), stranger


def attempt_batch(network: Tacotron, batch: Batch, noise: float, own: float, strangers: float = 0.0) -> Attempt:
    """Say a batch along its alignment; a share `own` of the fed-back frames is what the network itself would have
    said, and all of them in the share of rows that are said in a stranger's voice."""
    truth = (batch.mels - network.mean) / network.scale
    embedding, stranger = meet_strangers(batch.embedding, strangers)
    speaker = network.project_speaker(embedding, batch.quality)
    memory = network.encoder(batch.ids, batch.lengths, speaker)
    fed = feed_back(truth, noise)
    if own > 0:
        with torch.no_grad():
            said = network.decode(fed, memory, speaker, batch.alignment)[0]
        chosen = (torch.rand(fed.shape[:2]) < own) | stranger[:, None]
        fed = torch.where(chosen.unsqueeze(-1), feed_back(said.float(), noise / 2), fed)
    frames, queries = network.decode(fed, memory, speaker, batch.alignment)
    valid = torch.arange(batch.alignment.shape[1])[None] < batch.steps[:, None]
    attention = attention_loss(network, queries, memory, batch, valid)
    spoken = valid.repeat_interleave(FRAMES_PER_STEP, dim=1)
    refined = network.postnet(frames).float()
    return Attempt(truth, frames.float(), refined, attention, spoken, embedding, stranger)


def compute_losses(network: Tacotron, batch: Batch, noise: float, own: float) -> Losses:
    """The losses of a batch, without an adversary."""
    return regression_losses(attempt_batch(network, batch, noise, own))


def regression_losses(attempt: Attempt) -> Losses:
    """How far an attempt is from the truth where it is in the same voice, and from its alignment."""
    known = attempt.spoken & ~attempt.stranger[:, None]
    truth, refined = attempt.truth[known], attempt.refined[known]
    rough = functional.l1_loss(attempt.frames[known], truth)
    fine = functional.l1_loss(refined, truth)
    square = functional.mse_loss(refined, truth)
    total = rough + fine + 0.5 * square + _ATTENTION_WEIGHT * attempt.attention
    return Losses(total, rough, fine, attempt.attention)
