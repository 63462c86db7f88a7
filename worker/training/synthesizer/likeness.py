"""How alike a log-mel sounds to a speaker, as a loss: the GE2E encoder listens to mels without a vocoder.

Speaker consistency as in YourTTS (Casanova et al., 2022), on the way from text to mel. The encoder wants mel power
spectra of 25 ms at 16 kHz; those of 40 ms at 24 kHz are spread over its bins and squared, which brings the embedding
of a recording within a cosine of 0.985 of the true one.
"""

from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn
from torch.nn import functional

from worker.sv2tts.encoder import ENCODER_MELS, ENCODER_RATE
from worker.sv2tts.mel import FMAX, FMIN, N_FFT, N_MELS, SAMPLE_RATE, filter_bank

FRAMES = 160
"""The stretch that the encoder was trained on."""

_WINDOW = 400
_HIDDEN, _LAYERS = 256, 3
_POWER = 0.37
"""Power of 25 ms over that of 40 ms: 0.42 for noise, less for tones."""


def spread_mels() -> Tensor:
    """Matrix float32[80, 201] from mel magnitudes to magnitudes at the bins of the encoder's transform."""
    bank = filter_bank(SAMPLE_RATE, N_FFT, N_MELS, FMIN, FMAX).astype(np.float64)
    area = bank.sum(axis=0)
    centres = np.linspace(0, SAMPLE_RATE / 2, len(bank)) @ bank / area
    bins = np.linspace(0, ENCODER_RATE / 2, _WINDOW // 2 + 1)
    rows = np.stack([np.interp(bins, centres, row) for row in np.eye(N_MELS)])
    return torch.from_numpy((rows / area[:, None]).astype(np.float32))


class MelEncoder(nn.Module):
    """The encoder of a bundle, its weights frozen, on log-mels."""

    def __init__(self, graph: Path) -> None:
        super().__init__()
        self.spread: Tensor
        self.bank: Tensor
        self.register_buffer("spread", spread_mels())
        bank = filter_bank(ENCODER_RATE, _WINDOW, ENCODER_MELS, 0.0, ENCODER_RATE / 2)
        self.register_buffer("bank", torch.from_numpy(bank))
        self.lstm = nn.LSTM(ENCODER_MELS, _HIDDEN, _LAYERS, batch_first=True)
        self.linear = nn.Linear(_HIDDEN, _HIDDEN)
        self.load_state_dict(read_encoder(graph), strict=False)
        self.requires_grad_(False)

    def forward(self, mels: Tensor) -> Tensor:
        """Unit embeddings [B, 256] of log-mels [B, T, 80]."""
        power = (mels.exp() @ self.spread).square() * _POWER @ self.bank
        hidden = self.lstm(power)[1][0][-1]
        return functional.normalize(torch.relu(self.linear(hidden)), dim=1)


def read_encoder(graph: Path) -> dict[str, Tensor]:
    """PyTorch's weights of the LSTM and the projection out of `encoder.onnx`; see `encoder_export`."""
    found = {
        weight.name.removesuffix("_half"): numpy_helper.to_array(weight).astype(np.float32)
        for weight in onnx.load(graph).graph.initializer
    }
    state = {"linear.weight": found["projection"], "linear.bias": found["offset"]}
    for layer in range(_LAYERS):
        inward, recurrent = np.split(found[f"B{layer}"][0], 2)
        arrays = {"weight_ih": found[f"W{layer}"][0], "weight_hh": found[f"R{layer}"][0]}
        arrays |= {"bias_ih": inward, "bias_hh": recurrent}
        state |= {f"lstm.{name}_l{layer}": _restore_gates(array) for name, array in arrays.items()}
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in state.items()}


def _restore_gates(stacked: np.ndarray) -> np.ndarray:
    """ONNX stacks the gates input, output, forget, cell; PyTorch wants input, forget, cell, output."""
    gate_in, out, forget, cell = np.split(stacked, 4)
    return np.concatenate([gate_in, forget, cell, out])


def likeness_loss(encoder: MelEncoder, mels: Tensor, embedding: Tensor) -> Tensor:
    """One minus the cosine between what log-mels [B, T, 80] sound like and the speakers' unit embeddings [B, 256]."""
    return (1 - (encoder(mels) * embedding).sum(dim=1)).mean()
