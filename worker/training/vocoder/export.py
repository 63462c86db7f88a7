"""Export of a trained vocoder network to ONNX.

    python -m worker.training.vocoder.export --checkpoint last.pt --out vocoder.onnx

The graph takes `mel` [batch, frames, 80] and `cache` [batch, 6, 1616] (zeros at first) and gives, for the frames
LOOK_AHEAD earlier, `pitch` [batch, frames] in Hz, `voicing` [batch, frames] (probability), `next_cache`, and every 5 ms
what the sources are multiplied with, [batch, 2 frames, 257]: `tone_real` and `tone_imag` (minimum phase) and `noise`.
"""

import argparse
import math
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import Tensor, nn

from worker.sv2tts.envelope import KNOTS, knots_to_bins
from worker.sv2tts.mel import FLOOR, N_MELS
from worker.sv2tts.source import BINS, TRANSFORM
from worker.training.vocoder.network import VocoderNetwork, cache_shapes

OPSET = 18
MEL_CONTRAST, MEL_WIDTH = 0.4, 41
HARMONIC_CONTRAST, NOISE_CONTRAST, KNOT_WIDTH = 0.3, 0.6, 41
OUTPUTS = ("pitch", "voicing", "tone_real", "tone_imag", "noise", "next_cache")
LOUDEST = 3.0


def knots_to_phase() -> Tensor:
    """Matrix float32[128, 257] from log-magnitudes on knots to the phases of minimum-phase spectra, in radians.

    The phase of a minimum-phase spectrum is linear in its log-magnitude: the odd part of the folded cepstrum (Oppenheim
    and Schafer, "Discrete-Time Signal Processing").
    """
    cepstra = np.fft.irfft(knots_to_bins(BINS).astype(np.float64), TRANSFORM, axis=1)
    cepstra[:, 1 : TRANSFORM // 2] *= 2
    cepstra[:, TRANSFORM // 2 + 1 :] = 0
    return torch.from_numpy(np.fft.rfft(cepstra, TRANSFORM, axis=1).imag.astype(np.float32))


def contrast(size: int, width: int, amount: float) -> Tensor:
    """Matrix float32[size, size] that moves each band away from the Hann-weighted mean of the `width` bands around it.

    What is learnt by regression is flatter than speech, in the synthesizer's mels as in the vocoder's envelopes:
    formants are too low and the valleys between them too full of noise. This is the post-filter against it.
    """
    window = np.hanning(width + 2)[1:-1]
    offsets = np.arange(width) - width // 2
    mean = np.zeros((size, size))
    for band in range(size):
        np.add.at(mean[:, band], np.clip(band + offsets, 0, size - 1), window / window.sum())
    return torch.from_numpy(((1 + amount) * np.eye(size) - amount * mean).astype(np.float32))


class Serving(nn.Module):
    """The network with its post-filters, its caches side by side in one tensor, its pitch decoded and its envelopes as
    spectra."""

    def __init__(self, network: VocoderNetwork) -> None:
        super().__init__()
        self.network = network
        self.to_bins: Tensor
        self.to_phase: Tensor
        self.clear_mel: Tensor
        self.clear_noise: Tensor
        self.clear_harmonic: Tensor
        self.register_buffer("to_bins", torch.from_numpy(knots_to_bins(BINS)))
        self.register_buffer("to_phase", knots_to_phase())
        self.register_buffer("clear_mel", contrast(N_MELS, MEL_WIDTH, MEL_CONTRAST))
        self.register_buffer("clear_noise", contrast(KNOTS, KNOT_WIDTH, NOISE_CONTRAST))
        self.register_buffer("clear_harmonic", contrast(KNOTS, KNOT_WIDTH, HARMONIC_CONTRAST))

    def forward(self, mel: Tensor, cache: Tensor) -> tuple[Tensor, ...]:
        """See the module."""
        caches = torch.split(cache, [width for _, width in cache_shapes()], dim=-1)
        clear = (mel @ self.clear_mel).clamp(min=math.log(FLOOR))
        logits, voicing, harmonic, noise, kept = self.network(clear, caches)
        harmonic = (harmonic @ self.clear_harmonic).clamp(max=LOUDEST)
        noise = (noise @ self.clear_noise).clamp(max=LOUDEST)
        tone, phase = torch.exp(harmonic @ self.to_bins), harmonic @ self.to_phase
        return (
            self.network.decode_pitch(logits),
            torch.sigmoid(voicing),
            tone * torch.cos(phase),
            tone * torch.sin(phase),
            torch.exp(noise @ self.to_bins),
            torch.cat(kept, dim=-1),
        )


def read_network(path: Path) -> VocoderNetwork:
    """The averaged weights of a checkpoint."""
    state = torch.load(path, map_location="cpu", weights_only=True)["average"]
    network = VocoderNetwork()
    network.load_state_dict({name[7:]: value for name, value in state.items() if name.startswith("module.")})
    return network.eval()


def export_network(network: VocoderNetwork, out: Path) -> None:
    """Write the graph, batch and frames dynamic."""
    width = sum(size for _, size in cache_shapes())
    frames = cache_shapes()[0][0]
    example = (torch.zeros(2, 9, 80), torch.zeros(2, frames, width))
    batch, length = torch.export.Dim("batch"), torch.export.Dim("frames")
    program = torch.onnx.export(
        Serving(network).eval(),
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
