"""PyTorch on a GPU: the networks of `worker.training` with a bundle's weights, half precision, CUDA graphs.

A step of the decoder is some three hundred small kernels, whose launches take longer than their work; a CUDA graph
launches them as one. A graph has fixed shapes, so batches are padded to a few sizes, all captured before service. The
arithmetic is tested on a CPU; the GPU part is written to PyTorch's documentation and has not been run by us on one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from worker.backends.graph import Array, Arrays, Tensor
from worker.errors import BackendUnavailable
from worker.sv2tts.bundle import Bundle

MEMORY_BYTES = 1536 * 1024 * 1024
"""What PyTorch may take of a GPU; the driver's own share comes on top."""

BATCHES = (1, 2, 4, 8, 16, 32)
WIDTHS = (32, 64, 128)
"""Batch sizes and numbers of symbols that are captured before service; larger ones are run without a graph."""

_INTEGERS = frozenset({"ids", "lengths", "place"})
_CAPTURED = frozenset({"synthesizer_decoder", "vocoder"})
_FRAMES = 8
_WARM_UP_RUNS = 3


class TorchBackend:
    """Runs on the first GPU (or, for tests, on a `device`); raises BackendUnavailable without PyTorch or a GPU."""

    name = "torch"

    def __init__(self, threads: int = 1, device: str = "cuda") -> None:
        try:
            import torch
        except ImportError as problem:
            raise BackendUnavailable(self.name, "PyTorch is not installed", "install the extra `training`") from problem
        if device == "cuda" and not torch.cuda.is_available():
            raise BackendUnavailable(self.name, "PyTorch finds no CUDA device", "check the driver, or use another one")
        torch.set_num_threads(threads)
        if device == "cuda":
            total = torch.cuda.get_device_properties(0).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, MEMORY_BYTES / total))
            # The search for the fastest convolution takes seconds for each new shape.
            torch.backends.cudnn.benchmark = False
        self._device = device

    def open(self, bundle: Bundle, graph: str) -> TorchGraph:
        """The network of a graph with the bundle's weights; raises BackendUnavailable when they are not in it."""
        try:
            module = _load_module(bundle.root, graph)
        except (ImportError, OSError, RuntimeError) as problem:
            reason = f"{graph} cannot be made from the weights in the bundle ({str(problem).partition(chr(10))[0]})"
            raise BackendUnavailable(self.name, reason, "use a bundle of the same release, or another one") from problem
        loaded = TorchGraph(module, bundle.manifest["shapes"][graph], self._device)
        if self._device == "cuda" and graph in _CAPTURED:
            loaded.capture()
        return loaded


class TorchGraph:
    """A network as a graph. Batches are padded to the sizes that were captured."""

    def __init__(self, module: Any, shapes: Mapping[str, Mapping[str, list[int | str]]], device: str) -> None:
        self.inputs = tuple(
            Tensor(name, np.int64 if name in _INTEGERS else np.float32, tuple(shape))
            for name, shape in shapes["inputs"].items()
        )
        self.outputs = tuple(shapes["outputs"])
        self._shapes = shapes["outputs"]
        self._module = module.to(device)
        self._device = device
        self._captured: dict[tuple[int, int, int], _Captured] = {}

    def run(self, feed: Mapping[str, Array]) -> Arrays:
        """Every output by name."""
        sizes = self._sizes(feed)
        padded = self._padded_sizes(sizes)
        given = [_pad(feed[tensor.name], tensor, padded) for tensor in self.inputs]
        captured = self._captured.get((padded["batch"], padded["symbols"], padded["frames"]))
        values = captured.run(given) if captured is not None else self._compute(given)
        return {
            name: value[tuple(slice(sizes.get(str(size))) for size in self._shapes[name])]
            for name, value in zip(self.outputs, values, strict=True)
        }

    def capture(self) -> None:
        """Make CUDA graphs of all the sizes of service."""
        by_symbol = any("symbols" in tensor.shape for tensor in self.inputs)
        for batch in BATCHES:
            for width in WIDTHS if by_symbol else (0,):
                frames = 0 if by_symbol else _FRAMES
                zeros = [tensor.zeros(batch=batch, symbols=width, frames=frames) for tensor in self.inputs]
                for tensor, array in zip(self.inputs, zeros, strict=True):
                    if tensor.name == "lengths":
                        array[...] = 1
                self._captured[batch, width, frames] = _Captured(self._module, zeros)

    def _compute(self, given: list[Array]) -> list[Array]:
        import torch

        with torch.inference_mode(), torch.autocast(self._device, torch.float16, enabled=self._device == "cuda"):
            outputs = self._module(*(torch.from_numpy(array).to(self._device) for array in given))
        return [_to_numpy(output) for output in outputs]

    def _sizes(self, feed: Mapping[str, Array]) -> dict[str, int]:
        sizes = {"batch": 0, "symbols": 0, "frames": 0}
        for tensor in self.inputs:
            for name, size in zip(tensor.shape, feed[tensor.name].shape, strict=True):
                if isinstance(name, str):
                    sizes[name] = size
        return sizes

    def _padded_sizes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        if not self._captured:
            return dict(sizes)
        batch = next((size for size in BATCHES if size >= sizes["batch"]), sizes["batch"])
        width = next((size for size in WIDTHS if size >= sizes["symbols"]), sizes["symbols"])
        return {**sizes, "batch": batch, "symbols": width if sizes["symbols"] else 0}


class _Captured:
    """A CUDA graph with the memory of its inputs and outputs."""

    def __init__(self, module: Any, zeros: list[Array]) -> None:
        import torch

        self._inputs = [torch.from_numpy(array).cuda() for array in zeros]
        self._graph = torch.cuda.CUDAGraph()
        with torch.inference_mode(), torch.autocast("cuda", torch.float16, cache_enabled=False):
            beside = torch.cuda.Stream()
            beside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(beside):
                for _ in range(_WARM_UP_RUNS):
                    module(*self._inputs)
            torch.cuda.current_stream().wait_stream(beside)
            with torch.cuda.graph(self._graph):
                self._outputs = module(*self._inputs)

    def run(self, given: list[Array]) -> list[Array]:
        import torch

        for place, array in zip(self._inputs, given, strict=True):
            place.copy_(torch.from_numpy(array))
        self._graph.replay()
        return [_to_numpy(output) for output in self._outputs]


def _load_module(root: Path, graph: str) -> Any:
    from worker.training.weights import load_weights

    if graph.startswith("synthesizer"):
        from worker.training.synthesizer.export import Starter
        from worker.training.synthesizer.network import Tacotron
        from worker.training.synthesizer.stepping import Stepper

        network: Any = Tacotron()
        load_weights(network, root / "synthesizer.safetensors")
        module: Any = Starter(network) if graph == "synthesizer_encoder" else Stepper(network)
    else:
        from worker.training.vocoder.export import Serving
        from worker.training.vocoder.network import VocoderNetwork

        network = VocoderNetwork()
        load_weights(network, root / f"{graph}.safetensors")
        module = Serving(network)
    return module.eval().requires_grad_(False)


def _pad(array: Array, tensor: Tensor, sizes: Mapping[str, int]) -> Array:
    wanted = [size if isinstance(size, int) else sizes[size] for size in tensor.shape]
    if list(array.shape) == wanted:
        return np.ascontiguousarray(array)
    padded = np.pad(array, [(0, goal - size) for goal, size in zip(wanted, array.shape, strict=True)])
    if tensor.name == "lengths":
        padded[len(array) :] = 1
    return padded


def _to_numpy(output: Any) -> Array:
    value: Array = (output.float() if output.is_floating_point() else output).cpu().numpy()
    return value
