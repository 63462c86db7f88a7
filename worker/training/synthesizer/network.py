"""The network: phoneme encoder, windowed location-sensitive attention, two-LSTM decoder, streaming post-net.

Training knows the alignment, so every part runs over whole sequences: the attention is applied as
`alignment @ memory`, and its energies are only a classifier to be trained against it. The step-by-step form that
shares these weights is in `stepping`.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from worker.text.phonemes import SYMBOL_COUNT
from worker.training.dataset import FAIR_QUALITY

FRAMES_PER_STEP = 4
WINDOW_BEHIND, WINDOW_AHEAD = 1, 6
"""The attention of a step reaches from `WINDOW_BEHIND` symbols before the position to `WINDOW_AHEAD` after it."""

LOOK_AHEAD = 4
"""Frames by which the post-net lags: one a layer."""

ASKED_QUALITY = 4.5
"""The score of good recordings; beyond what training saw, speech gets no better."""

_KERNEL = 5
_PAST = 3
_LOCATIONS = 3


@dataclass(frozen=True, slots=True)
class Sizes:
    """Widths of the layers."""

    symbols: int = SYMBOL_COUNT
    mels: int = 80
    embedding: int = 256
    speaker: int = 128
    memory: int = 256
    attention: int = 128
    prenet: int = 128
    attention_lstm: int = 384
    decoder_lstm: int = 448
    postnet: int = 128


class PhonemeEncoder(nn.Module):
    """Three residual convolutions and a bidirectional LSTM, then the speaker is mixed in."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width = sizes.memory
        self.embedding = nn.Embedding(sizes.symbols, width)
        self.convolutions = nn.ModuleList(nn.Conv1d(width, width, 5, padding=2) for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.forwards = nn.LSTM(width, width // 2, batch_first=True)
        self.backwards = nn.LSTM(width, width // 2, batch_first=True)
        self.mix = nn.Linear(width + sizes.speaker, width)

    def forward(self, ids: Tensor, lengths: Tensor, speaker: Tensor) -> Tensor:
        """[B, N, memory] of ids [B, N], lengths [B] and projected speakers [B, speaker]; zero past the lengths."""
        places = torch.arange(ids.shape[1], device=ids.device)[None]
        mask = (places < lengths[:, None]).unsqueeze(-1).to(self.embedding.weight.dtype)
        hidden = self.embedding(ids) * mask
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            filtered = torch.relu(convolution(hidden.transpose(1, 2)).transpose(1, 2))
            hidden = norm(hidden + functional.dropout(filtered, 0.2, self.training)) * mask
        mirror = (lengths[:, None] - 1 - places).clamp(min=0).unsqueeze(-1).expand(-1, -1, hidden.shape[2])
        forwards = self.forwards(hidden)[0]
        backwards = self.backwards(torch.gather(hidden, 1, mirror))[0]
        both = torch.cat([forwards, torch.gather(backwards, 1, mirror[..., : backwards.shape[2]])], dim=2)
        voice = speaker.unsqueeze(1).expand(-1, both.shape[1], -1)
        mixed: Tensor = torch.tanh(self.mix(torch.cat([both, voice], dim=2))) * mask
        return mixed


class Attention(nn.Module):
    """Energies from the decoder's state, the memory, and where attention was (Chorowski et al., 2015)."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.query = nn.Linear(sizes.attention_lstm, sizes.attention, bias=False)
        self.key = nn.Linear(sizes.memory, sizes.attention)
        self.location = nn.Linear(2 * _LOCATIONS, sizes.attention, bias=False)
        self.energy = nn.Linear(sizes.attention, 1, bias=False)

    def forward(self, queries: Tensor, keys: Tensor, locations: Tensor) -> Tensor:
        """Energies [..., W] of queries [..., attention], keys and locations [..., W, attention or 6]."""
        mixed = torch.tanh(queries.unsqueeze(-2) + keys + self.location(locations))
        energies: Tensor = self.energy(mixed).squeeze(-1)
        return energies


class PostNet(nn.Module):
    """Four convolutions that see three frames back and one ahead; a correction to the decoder's frames."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        widths = [sizes.mels, *[sizes.postnet] * (LOOK_AHEAD - 1), sizes.mels]
        self.layers = nn.ModuleList(nn.Conv1d(inner, outer, _KERNEL) for inner, outer in pairwise(widths))

    def forward(self, mels: Tensor) -> Tensor:
        """Corrected mels [B, T, 80]."""
        hidden = mels.transpose(1, 2)
        for index, layer in enumerate(self.layers):
            hidden = layer(functional.pad(hidden, (_PAST, _KERNEL - 1 - _PAST)))
            if index < len(self.layers) - 1:
                hidden = torch.tanh(hidden)
        return mels + hidden.transpose(1, 2)


class Tacotron(nn.Module):
    """The whole network; mels are normalised with the buffers `mean` and `scale` [80].

    Recordings differ in how natural they sound, so the network is told the score of each in training, and `asked`, the
    one to speak with, in service: it learns a person's voice without the person's room.
    """

    mean: Tensor
    scale: Tensor
    asked: Tensor

    def __init__(self, sizes: Sizes | None = None) -> None:
        super().__init__()
        sizes = sizes or Sizes()
        self.sizes = sizes
        self.register_buffer("mean", torch.zeros(sizes.mels))
        self.register_buffer("scale", torch.ones(sizes.mels))
        self.register_buffer("asked", torch.tensor(ASKED_QUALITY))
        self.speaker = nn.Linear(sizes.embedding, sizes.speaker)
        self.quality = nn.Linear(1, sizes.speaker, bias=False)
        nn.init.zeros_(self.quality.weight)
        self.encoder = PhonemeEncoder(sizes)
        self.attention = Attention(sizes)
        self.prenet = nn.ModuleList([nn.Linear(sizes.mels, 192), nn.Linear(192, sizes.prenet)])
        fed = sizes.prenet + sizes.memory + sizes.speaker
        self.attention_lstm = nn.LSTM(fed, sizes.attention_lstm, batch_first=True)
        self.decoder_lstm = nn.LSTM(
            sizes.attention_lstm + sizes.memory + sizes.speaker, sizes.decoder_lstm, batch_first=True
        )
        self.projection = nn.Linear(sizes.decoder_lstm + sizes.memory, FRAMES_PER_STEP * sizes.mels)
        self.postnet = PostNet(sizes)

    def project_speaker(self, embedding: Tensor, quality: Tensor | None = None) -> Tensor:
        """[B, speaker] of unit embeddings [B, 256] and scores [B], `asked` when left out; bounded, so that no
        embedding drives the decoder astray."""
        score = self.asked.expand(embedding.shape[0]) if quality is None else quality
        return torch.tanh(self.speaker(embedding * 16.0) + self.quality((score - FAIR_QUALITY).unsqueeze(1)))

    def feed(self, frames: Tensor) -> Tensor:
        """The pre-net: half of its units are dropped in training, none in service."""
        hidden = frames
        for layer in self.prenet:
            hidden = functional.dropout(torch.relu(layer(hidden)), 0.5, self.training)
        return hidden

    def decode(self, fed: Tensor, memory: Tensor, speaker: Tensor, alignment: Tensor) -> tuple[Tensor, Tensor]:
        """Teacher-forced decoding: frames [B, S * 4, 80] before the post-net and attention queries [B, S, attention]
        of fed-back frames [B, S, 80], memory [B, N, memory], speaker [B, speaker], alignment [B, S, N]."""
        context = alignment @ memory
        before = functional.pad(context, (0, 0, 1, 0))[:, :-1]
        voice = speaker.unsqueeze(1).expand(-1, fed.shape[1], -1)
        attended = self.attention_lstm(torch.cat([self.feed(fed), before, voice], dim=2))[0]
        attended = functional.dropout(attended, 0.1, self.training)
        decoded = self.decoder_lstm(torch.cat([attended, context, voice], dim=2))[0]
        decoded = functional.dropout(decoded, 0.1, self.training)
        frames = self.projection(torch.cat([decoded, context], dim=2))
        return frames.reshape(frames.shape[0], -1, self.sizes.mels), self.attention.query(attended)
