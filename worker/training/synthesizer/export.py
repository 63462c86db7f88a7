"""Export to ONNX: one graph that prepares an utterance, one that makes 80 ms of it.

python -m worker.training.synthesizer.export --checkpoint RUN/checkpoint.pt --out bundles/base
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from torch import Tensor, nn

from worker.training.synthesizer.network import Tacotron
from worker.training.synthesizer.stepping import STATE_NAMES, Stepper, initial_state

_OPSET = 18
_ENCODER_INPUTS = ("ids", "lengths", "embedding")
_ENCODER_OUTPUTS = ("memory", "keys", "speaker")
_DECODER_INPUTS = (*_ENCODER_OUTPUTS, "lengths", *STATE_NAMES)
_DECODER_OUTPUTS = ("mel", "reached", *(f"next_{name}" for name in STATE_NAMES))
_BY_SYMBOL = frozenset({"ids", "memory", "keys", "weights", "total", "next_weights", "next_total"})
_TOLERANCE = 2e-3


class Starter(nn.Module):
    """The encoder graph: what the decoder needs to know of an utterance."""

    def __init__(self, network: Tacotron) -> None:
        super().__init__()
        self.network = network

    def forward(self, ids: Tensor, lengths: Tensor, embedding: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Memory [B, N, M], attention keys [B, N, K] and projected speakers [B, S]."""
        speaker = self.network.project_speaker(embedding)
        memory = self.network.encoder(ids, lengths, speaker)
        return memory, self.network.attention.key(memory), speaker


def load_average(checkpoint: Path) -> Tacotron:
    """The averaged network of a checkpoint, ready for inference."""
    network = Tacotron()
    network.load_state_dict(torch.load(checkpoint, map_location="cpu", weights_only=True)["average"])
    return network.eval().requires_grad_(False)


def _example(network: Tacotron) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Inputs of both graphs for two utterances, of seven and five symbols."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1, network.sizes.symbols, (2, 7), generator=generator)
    lengths = torch.tensor([7, 5])
    embedding = nn.functional.normalize(torch.rand(2, network.sizes.embedding, generator=generator))
    conditions = Starter(network)(ids, lengths, embedding)
    state = initial_state(network, 2, 7)
    return (ids, lengths, embedding), (*conditions, lengths, *(getattr(state, name) for name in STATE_NAMES))


def _write(
    module: nn.Module, inputs: tuple[Tensor, ...], names: tuple[Sequence[str], Sequence[str]], path: Path
) -> None:
    axes = {name: {0: "batch", 1: "symbols"} if name in _BY_SYMBOL else {0: "batch"} for name in (*names[0], *names[1])}
    torch.onnx.export(
        module.eval(),
        inputs,
        str(path),
        input_names=list(names[0]),
        output_names=list(names[1]),
        dynamic_axes=axes,
        opset_version=_OPSET,
        dynamo=False,
    )
    model = onnx.load(str(path))
    onnx.checker.check_model(model, full_check=True)


def _compare(module: nn.Module, feed: Mapping[str, Tensor], path: Path) -> float:
    """The largest difference between a graph and its module."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    found = session.run(None, {name: tensor.numpy() for name, tensor in feed.items()})
    wanted: Any = module(*feed.values())
    return max(float(np.abs(one - other.numpy()).max()) for one, other in zip(found, wanted, strict=True))


def export_graphs(checkpoint: Path, out: Path) -> float:
    """Write `synthesizer_encoder.onnx` and `synthesizer_decoder.onnx`; their largest difference from the network.

    Raises ArithmeticError when that is more than rounding.
    """
    network = load_average(checkpoint)
    starter, stepper = Starter(network), Stepper(network)
    encoder_inputs, decoder_inputs = _example(network)
    out.mkdir(parents=True, exist_ok=True)
    paths = out / "synthesizer_encoder.onnx", out / "synthesizer_decoder.onnx"
    _write(starter, encoder_inputs, (_ENCODER_INPUTS, _ENCODER_OUTPUTS), paths[0])
    _write(stepper, decoder_inputs, (_DECODER_INPUTS, _DECODER_OUTPUTS), paths[1])
    error = max(
        _compare(starter, dict(zip(_ENCODER_INPUTS, encoder_inputs, strict=True)), paths[0]),
        _compare(stepper, dict(zip(_DECODER_INPUTS, decoder_inputs, strict=True)), paths[1]),
    )
    if error > _TOLERANCE:
        raise ArithmeticError(f"the exported graphs differ from the network by {error:.2g}")
    return error


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Export the synthesizer of a checkpoint.")
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"largest difference from the network: {export_graphs(options.checkpoint, options.out):.2g}")


if __name__ == "__main__":
    main()
