"""Weights alone, in half precision, to go on training from: small enough to keep beside the graphs.

python -m worker.training.weights --checkpoint WORK/run/checkpoint.pt --out bundles/base/synthesizer.safetensors
"""

import argparse
from collections.abc import Collection, Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

_AVERAGED = "module."
"""What torch's AveragedModel puts before the names of the weights."""
_COUNTER = "n_averaged"


def save_weights(state: Mapping[str, torch.Tensor], path: Path) -> None:
    """Write a network's state, floating-point numbers in half precision; raises ValueError for one beyond its reach."""
    kept = {}
    for name, value in state.items():
        half = value.detach().half() if value.is_floating_point() else value.detach()
        if half.is_floating_point() and not torch.isfinite(half).all():
            raise ValueError(f"{name} holds a number that is not finite in half precision")
        if name != _COUNTER:
            kept[name.removeprefix(_AVERAGED)] = half.contiguous()
    save_file(kept, path)


def load_weights(network: nn.Module, path: Path, new: Collection[str] = ()) -> None:
    """Read weights into a network of the same shape; raises RuntimeError that names what does not fit.

    Those named in `new` keep their first values when the file is older than they are.
    """
    state = {name: value for name, value in network.state_dict().items() if name in new}
    network.load_state_dict(state | {name: value.float() for name, value in load_file(path).items()})


def main() -> None:
    """The command line: the averaged weights of a checkpoint."""
    parser = argparse.ArgumentParser(description="Keep the weights of a checkpoint.")
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    save_weights(torch.load(options.checkpoint, map_location="cpu", weights_only=True)["average"], options.out)


if __name__ == "__main__":
    main()
