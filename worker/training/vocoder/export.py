"""Export of a trained vocoder network to ONNX.

    python -m worker.training.vocoder.export --checkpoint last.pt --out vocoder.onnx

The graph takes `mel` [batch, frames, 80] and `cache` [batch, 6, width] (zeros at first) and gives, for the frames
LOOK_AHEAD earlier, `pitch` [batch, frames] in Hz, `voicing` [batch, frames] (probability), `next_cache`, and every 5 ms
what the sources are multiplied with, [batch, 2 frames, bins]: `tone_real` and `tone_imag` (minimum phase) and `noise`.
"""

import argparse
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import Tensor, nn

from worker.sv2tts.envelope import KNOTS, knots_to_bins
from worker.sv2tts.mel import N_MELS, Floats
from worker.sv2tts.source import FULL, Grid
from worker.training.vocoder.network import VocoderNetwork

OPSET = 20
HARMONIC_CONTRAST = NOISE_CONTRAST = 0.7
KNOT_WIDTH = 41
OUTPUTS = ("pitch", "voicing", "tone_real", "tone_imag", "noise", "next_cache")
LOUDEST = 3.0


def knots_to_phase(spread: Floats) -> Tensor:
    """Matrix float32[knots, bins] from log-magnitudes on knots to the phases of minimum-phase spectra, in radians;
    `spread` float32[knots, bins] interpolates the magnitudes.

    The phase of a minimum-phase spectrum is linear in its log-magnitude: the odd part of the folded cepstrum (Oppenheim
    and Schafer, "Discrete-Time Signal Processing").
    """
    transform = 2 * (spread.shape[1] - 1)
    cepstra = np.fft.irfft(spread.astype(np.float64), transform, axis=1)
    cepstra[:, 1 : transform // 2] *= 2
    cepstra[:, transform // 2 + 1 :] = 0
    return torch.from_numpy(np.fft.rfft(cepstra, transform, axis=1).imag.astype(np.float32))


def contrast(size: int, width: int, amount: float) -> Tensor:
    """Matrix float32[size, size] that moves each band away from the Hann-weighted mean of the `width` bands around it.

    Envelopes that are learnt by regression are flatter than those of speech: formants are too low and the valleys
    between them too full of noise. This is the post-filter against it. Mels must not be sharpened in this way: it costs
    a recording a tenth of its likeness to itself.
    """
    window = np.hanning(width + 2)[1:-1]
    offsets = np.arange(width) - width // 2
    mean = np.zeros((size, size))
    for band in range(size):
        np.add.at(mean[:, band], np.clip(band + offsets, 0, size - 1), window / window.sum())
    return torch.from_numpy(((1 + amount) * np.eye(size) - amount * mean).astype(np.float32))


class Spectra(nn.Module):
    """Envelopes on knots as spectra on the bins of a grid."""

    def __init__(self, grid: Grid, knots: int) -> None:
        super().__init__()
        spread = knots_to_bins(grid.bins, knots, grid.rate / 2)
        self.to_bins: Tensor
        self.to_phase: Tensor
        self.register_buffer("to_bins", torch.from_numpy(spread))
        self.register_buffer("to_phase", knots_to_phase(spread))

    def forward(self, harmonic: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Levels [B, 2 T, knots] -> `tone_real`, `tone_imag` and `noise` [B, 2 T, bins]."""
        harmonic, noise = harmonic.clamp(max=LOUDEST), noise.clamp(max=LOUDEST)
        tone, phase = torch.exp(harmonic @ self.to_bins), harmonic @ self.to_phase
        return tone * torch.cos(phase), tone * torch.sin(phase), torch.exp(noise @ self.to_bins)


class Serving(nn.Module):
    """The network with its post-filters, its caches side by side in one tensor, its pitch decoded and its envelopes as
    spectra."""

    def __init__(self, network: VocoderNetwork) -> None:
        super().__init__()
        self.network = network
        self.spectra = Spectra(FULL, KNOTS)
        self.clear_noise: Tensor
        self.clear_harmonic: Tensor
        self.register_buffer("clear_noise", contrast(KNOTS, KNOT_WIDTH, NOISE_CONTRAST))
        self.register_buffer("clear_harmonic", contrast(KNOTS, KNOT_WIDTH, HARMONIC_CONTRAST))

    def forward(self, mel: Tensor, cache: Tensor) -> tuple[Tensor, ...]:
        """See the module."""
        logits, voicing, harmonic, noise, kept = self.network(mel, split_cache(self.network, cache))
        spectra = self.spectra(harmonic @ self.clear_harmonic, noise @ self.clear_noise)
        return self.network.decode_pitch(logits), torch.sigmoid(voicing), *spectra, torch.cat(kept, dim=-1)


def split_cache(network: VocoderNetwork, cache: Tensor) -> tuple[Tensor, ...]:
    """The caches of the network's layers, which lie side by side in [B, 6, width]."""
    return torch.split(cache, [width for _, width in network.size.cache_shapes()], dim=-1)


def read_network(path: Path) -> VocoderNetwork:
    """The averaged weights of a checkpoint."""
    state = torch.load(path, map_location="cpu", weights_only=True)["average"]
    network = VocoderNetwork()
    network.load_state_dict({name[7:]: value for name, value in state.items() if name.startswith("module.")})
    return network.eval()


def export_network(network: VocoderNetwork, out: Path) -> None:
    """Write the graph of the full network."""
    export_graph(Serving(network), network, out)


def export_graph(serving: nn.Module, network: VocoderNetwork, out: Path) -> None:
    """Write a graph, batch and frames dynamic; `serving` takes and gives what the module says."""
    shapes = network.size.cache_shapes()
    example = (torch.zeros(2, 9, N_MELS), torch.zeros(2, shapes[0][0], sum(width for _, width in shapes)))
    batch, length = torch.export.Dim("batch"), torch.export.Dim("frames")
    program = torch.onnx.export(
        serving.eval(),
        example,
        input_names=["mel", "cache"],
        output_names=list(OUTPUTS),
        opset_version=OPSET,
        dynamic_shapes={"mel": {0: batch, 1: length}, "cache": {0: batch}},
        dynamo=True,
    )
    if program is None:
        raise RuntimeError("the exporter gave no program")
    program.save(str(out))
    onnx.checker.check_model(str(out))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Export the vocoder network.")
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    export_network(read_network(options.checkpoint), options.out)


if __name__ == "__main__":
    main()
