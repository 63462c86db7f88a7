"""The decoder as service runs it: two decoder steps, 80 ms, a call, all state explicit.

A call takes what `initial_state` describes and returns it changed. The attention can neither skip nor turn back: its
position only grows, by at most `WINDOW_AHEAD` symbols a step, and it is pushed on where it dwells too long or where
the steps left would no longer reach the last symbol. So speech ends, and ends at the last symbol.
"""

from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn
from torch.nn import functional

from worker.training.synthesizer.network import (
    FRAMES_PER_STEP,
    LOOK_AHEAD,
    WINDOW_AHEAD,
    WINDOW_BEHIND,
    Tacotron,
)

STEPS_PER_CALL = 2
DWELL_LIMIT = 16
"""Decoder steps (40 ms each) that a symbol may last."""

_CACHE = 4


@dataclass(frozen=True, slots=True)
class State:
    """Everything that lives between calls, batch first.

    `frame` [B, 80] the last frame fed back; `attention_h`, `attention_c` [B, A]; `decoder_h`, `decoder_c` [B, D];
    `weights`, `total` [B, N] the last and the summed attention; `context` [B, M]; `place` int64 [B, 3]: position,
    steps spent there, steps made; `caches` [B, 4, 128, 4]: the last four frames before the post-net and after each
    of its inner layers, channels padded to the widest.
    """

    frame: Tensor
    attention_h: Tensor
    attention_c: Tensor
    decoder_h: Tensor
    decoder_c: Tensor
    weights: Tensor
    total: Tensor
    context: Tensor
    place: Tensor
    caches: Tensor


STATE_NAMES = tuple(field.name for field in fields(State))


def initial_state(network: Tacotron, batch: int, symbols: int) -> State:
    """The state before the first call: all zeros."""
    sizes = network.sizes

    def zeros(*shape: int) -> Tensor:
        return torch.zeros(batch, *shape)

    return State(
        frame=zeros(sizes.mels),
        attention_h=zeros(sizes.attention_lstm),
        attention_c=zeros(sizes.attention_lstm),
        decoder_h=zeros(sizes.decoder_lstm),
        decoder_c=zeros(sizes.decoder_lstm),
        weights=zeros(symbols),
        total=zeros(symbols),
        context=zeros(sizes.memory),
        place=torch.zeros(batch, 3, dtype=torch.int64),
        caches=zeros(LOOK_AHEAD, max(sizes.postnet, sizes.mels), _CACHE),
    )


def _advance_cell(lstm: nn.LSTM, inputs: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """One step of a one-layer LSTM, as matrix products that every ONNX runtime batches."""
    inward, recurrent, inward_bias, recurrent_bias = lstm.all_weights[0]
    gates = functional.linear(inputs, inward, inward_bias) + functional.linear(hidden, recurrent, recurrent_bias)
    enter, forget, fresh, leave = gates.chunk(4, dim=1)
    cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(fresh)
    return torch.sigmoid(leave) * torch.tanh(cell), cell


class Stepper(nn.Module):
    """The decoder graph. Inputs: memory [B, N, M], keys [B, N, K], speaker [B, S], lengths [B], then the state;
    outputs: mels [B, 8, 80] (delayed by `LOOK_AHEAD` frames), reached [B, 2] (the weight on the last symbol at each
    step), then the state."""

    def __init__(self, network: Tacotron) -> None:
        super().__init__()
        self.network = network

    def forward(
        self, memory: Tensor, keys: Tensor, speaker: Tensor, lengths: Tensor, *state: Tensor
    ) -> tuple[Tensor, ...]:
        now = State(*state)
        rough, reached = [], []
        for _ in range(STEPS_PER_CALL):
            frames, mass, now = self._step(memory, keys, speaker, lengths, now)
            rough.append(frames)
            reached.append(mass)
        refined, caches = self._refine(torch.cat(rough, dim=1), now)
        mels = refined * self.network.scale + self.network.mean
        rest = [getattr(now, name) for name in STATE_NAMES[:-1]]
        return mels, torch.stack(reached, dim=1), *rest, caches

    def _step(
        self, memory: Tensor, keys: Tensor, speaker: Tensor, lengths: Tensor, now: State
    ) -> tuple[Tensor, Tensor, State]:
        network = self.network
        inputs = torch.cat([network.feed(now.frame), now.context, speaker], dim=1)
        attention_h, attention_c = _advance_cell(network.attention_lstm, inputs, now.attention_h, now.attention_c)
        place = self._push(now.place, lengths)
        weights = self._attend(attention_h, keys, lengths, now, place)
        context = (weights.unsqueeze(1) @ memory).squeeze(1)
        inputs = torch.cat([attention_h, context, speaker], dim=1)
        decoder_h, decoder_c = _advance_cell(network.decoder_lstm, inputs, now.decoder_h, now.decoder_c)
        frames = network.projection(torch.cat([decoder_h, context], dim=1))
        frames = frames.reshape(-1, FRAMES_PER_STEP, network.sizes.mels)
        last = lengths.unsqueeze(1) - 1
        mass = torch.gather(weights, 1, last).squeeze(1)
        state = State(
            frames[:, -1], attention_h, attention_c, decoder_h, decoder_c, weights, now.total + weights, context,
            self._follow(place, weights), now.caches,
        )  # fmt: skip
        return frames, mass, state

    @staticmethod
    def _push(place: Tensor, lengths: Tensor) -> Tensor:
        """The place with its position moved on where it dwelt too long or the ceiling of steps comes near."""
        position, dwelt, made = place[:, 0], place[:, 1], place[:, 2]
        last = lengths - 1
        position = position + (dwelt >= DWELL_LIMIT).to(torch.int64)
        due = last - (step_ceiling_of(lengths) - 1 - made)
        position = torch.minimum(torch.maximum(position, due), last)
        return torch.stack([position, dwelt, made], dim=1)

    def _attend(self, query: Tensor, keys: Tensor, lengths: Tensor, now: State, place: Tensor) -> Tensor:
        attention = self.network.attention
        locations = []
        for weights in (now.weights, now.total):
            padded = functional.pad(weights, (1, 1))
            locations += [padded[:, :-2], padded[:, 1:-1], padded[:, 2:]]
        energies = attention(attention.query(query), keys, torch.stack(locations, dim=-1))
        numbers = torch.arange(keys.shape[1], device=keys.device).unsqueeze(0)
        position = place[:, :1]
        behind = torch.where(place[:, 1:2] >= DWELL_LIMIT, 0, WINDOW_BEHIND)
        due = lengths.unsqueeze(1) - (step_ceiling_of(lengths).unsqueeze(1) - place[:, 2:])
        lowest = torch.maximum(position - behind, due)
        inside = (numbers >= lowest) & (numbers <= position + WINDOW_AHEAD) & (numbers < lengths.unsqueeze(1))
        return torch.softmax(energies.masked_fill(~inside, -1e4), dim=1)

    @staticmethod
    def _follow(place: Tensor, weights: Tensor) -> Tensor:
        """The place after a step: the first symbol that holds a tenth of it, never an earlier one than before."""
        reached = (weights.cumsum(dim=1) > 0.1).to(torch.int64).argmax(dim=1)
        position = torch.maximum(reached, place[:, 0])
        stayed = position == place[:, 0]
        dwelt = torch.where(stayed & (place[:, 1] < DWELL_LIMIT), place[:, 1] + 1, torch.ones_like(position))
        return torch.stack([position, dwelt, place[:, 2] + 1], dim=1)

    def _refine(self, rough: Tensor, now: State) -> tuple[Tensor, Tensor]:
        """The post-net over the new frames and the cached ones: [B, 8, 80], `LOOK_AHEAD` frames late."""
        width = now.caches.shape[2]
        fresh = rough.shape[1]
        start = now.place[:, 2:] * FRAMES_PER_STEP - fresh
        hidden, kept = rough.transpose(1, 2), []
        delayed = torch.cat([now.caches[:, 0, : rough.shape[2]], hidden], dim=2)[:, :, :fresh]
        for index, layer in enumerate(self.network.postnet.layers):
            channels = hidden.shape[1]
            joined = torch.cat([now.caches[:, index, :channels], hidden], dim=2)
            kept.append(functional.pad(joined[:, :, fresh:], (0, 0, 0, width - channels)))
            hidden = layer(joined)
            if index < LOOK_AHEAD - 1:
                # Before the first frame every layer's input is zero, as in training, not the layer's answer to zeros.
                known = start + torch.arange(fresh, device=rough.device) >= index + 1
                hidden = torch.tanh(hidden) * known.unsqueeze(1).to(hidden.dtype)
        return (delayed + hidden).transpose(1, 2), torch.stack(kept, dim=1)


def step_ceiling_of(lengths: Tensor) -> Tensor:
    """The most decoder steps that utterances of so many symbols may take."""
    return 12 + 4 * lengths
