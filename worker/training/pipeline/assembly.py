"""The graphs and the weights of a bundle, from the checkpoints of a run.

python -m worker.training.pipeline.assembly --synthesizer checkpoint.pt --vocoder last.pt --bundle DIR
"""

import argparse
import shutil
from pathlib import Path

import torch

from worker.training.synthesizer.export import export_graphs
from worker.training.vocoder.export import export_network, read_network
from worker.training.weights import save_weights


def save_average(checkpoint: Path, out: Path) -> None:
    """Keep the averaged weights of a checkpoint, in half precision."""
    state = torch.load(checkpoint, map_location="cpu", weights_only=True)
    part = out.with_suffix(".part")
    save_weights(state["average"], part)
    part.rename(out)


def copy_rest(base: Path, bundle: Path) -> None:
    """Take from another bundle every graph and the weights that are not the synthesizer's."""
    for path in sorted((*base.glob("*.onnx"), *base.glob("*.safetensors"))):
        if not path.name.startswith("synthesizer"):
            shutil.copyfile(path, bundle / path.name)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Export the networks of a run.")
    parser.add_argument("--synthesizer", type=Path, required=True)
    parser.add_argument("--vocoder", type=Path, help="a checkpoint")
    parser.add_argument("--rest-of", type=Path, help="the bundle that everything else is taken from")
    parser.add_argument("--bundle", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    export_graphs(options.synthesizer, options.bundle)
    save_average(options.synthesizer, options.bundle / "synthesizer.safetensors")
    if options.rest_of:
        copy_rest(options.rest_of, options.bundle)
    if options.vocoder:
        export_network(read_network(options.vocoder), options.bundle / "vocoder.onnx")
        save_average(options.vocoder, options.bundle / "vocoder.safetensors")


if __name__ == "__main__":
    main()
