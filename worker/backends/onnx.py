"""ONNX Runtime: on the CPU, or on a GPU with the CUDA or the TensorRT provider.

The GPU providers are written to ONNX Runtime's documentation and have not been run by us on one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from worker.backends.graph import Array, Arrays, Tensor
from worker.errors import BackendUnavailable, BundleError
from worker.sv2tts.bundle import Bundle, graph_shapes

GPU_MEMORY_BYTES = 512 * 1024 * 1024
"""What each of the three graphs may take of a GPU: with the runtime's own share a worker stays under 2 GB."""

_KINDS: Mapping[str, type[np.generic]] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(bool)": np.bool_,
}
_CUDA = {
    "arena_extend_strategy": "kSameAsRequested",
    # An exhaustive search for the fastest convolution takes seconds for each new shape.
    "cudnn_conv_algo_search": "HEURISTIC",
    "gpu_mem_limit": str(GPU_MEMORY_BYTES),
}
_TENSORRT = {
    "trt_fp16_enable": "1",
    "trt_max_workspace_size": str(GPU_MEMORY_BYTES),
    "trt_engine_cache_enable": "1",
}
_PROFILES: Mapping[str, Mapping[str, int]] = {
    "trt_profile_min_shapes": {"batch": 1, "symbols": 1, "frames": 8},
    "trt_profile_opt_shapes": {"batch": 16, "symbols": 64, "frames": 8},
    "trt_profile_max_shapes": {"batch": 256, "symbols": 1024, "frames": 8},
}
"""TensorRT compiles for a range of shapes: outside of it, or without one, it would compile again in service."""
PROVIDERS: Mapping[str, tuple[str, ...]] = {
    "cpu": ("CPUExecutionProvider",),
    "cuda": ("CUDAExecutionProvider", "CPUExecutionProvider"),
    "tensorrt": ("TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"),
}
_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "CPUExecutionProvider": {},
    "CUDAExecutionProvider": _CUDA,
    "TensorrtExecutionProvider": _TENSORRT,
}


class OnnxBackend:
    """Sessions with one chain of providers; raises BackendUnavailable when the first of it is not in this build."""

    def __init__(self, name: str = "cpu", threads: int = 1) -> None:
        self.name = name
        self._threads = threads
        if PROVIDERS[name][0] not in onnxruntime.get_available_providers():
            reason = f"this ONNX Runtime ({onnxruntime.__version__}) has no {PROVIDERS[name][0]}"
            raise BackendUnavailable(name, reason, "install the package's extra `gpu`")

    def open(self, bundle: Bundle, graph: str) -> OnnxGraph:
        """A session on the graph, with the manifest's tensors."""
        path = bundle.root / f"{graph}.onnx"
        wanted = PROVIDERS[self.name]
        providers = [(name, provider_options(name, bundle, graph)) for name in wanted]
        try:
            session = onnxruntime.InferenceSession(str(path), self._session_options(), providers=providers)
        except Exception as problem:  # the runtime's exceptions have no base of their own
            raise BackendUnavailable(self.name, _first_line(problem), "see the reason, or set backend=cpu") from problem
        if session.get_providers()[0] != wanted[0]:
            # The runtime falls back by itself and only warns: a driver or library of the provider is missing.
            raise BackendUnavailable(self.name, f"{wanted[0]} did not start", "check the driver and its libraries")
        if graph_shapes(session) != bundle.manifest["shapes"][graph]:
            reason = f"the tensors of {path.name} are not those of the manifest"
            raise BundleError(bundle.root, reason, "fetch or unpack the bundle again")
        return OnnxGraph(session)

    def _session_options(self) -> Any:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        return options


def provider_options(provider: str, bundle: Bundle, graph: str) -> dict[str, str]:
    """What a provider is told: bounds of memory, no long searches, and for TensorRT the range of shapes and a folder
    for what it compiled."""
    options = dict(_OPTIONS[provider])
    if provider == "TensorrtExecutionProvider":
        options["trt_engine_cache_path"] = str(Path(tempfile.gettempdir()) / f"timbrelay-{bundle.checksum[:16]}")
        inputs: Mapping[str, list[int | str]] = bundle.manifest["shapes"][graph]["inputs"]
        for option, sizes in _PROFILES.items():
            options[option] = ",".join(
                f"{name}:{'x'.join(str(sizes.get(str(size), size)) for size in shape)}"
                for name, shape in inputs.items()
            )
    return options


class OnnxGraph:
    """A session as a graph."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.inputs = tuple(
            Tensor(tensor.name, _KINDS[tensor.type], tuple(tensor.shape)) for tensor in session.get_inputs()
        )
        self.outputs = tuple(tensor.name for tensor in session.get_outputs())

    def run(self, feed: Mapping[str, Array]) -> Arrays:
        """Every output by name."""
        values = self._session.run(self.outputs, {tensor.name: feed[tensor.name] for tensor in self.inputs})
        return dict(zip(self.outputs, values, strict=True))


def _first_line(problem: Exception) -> str:
    return str(problem).strip().partition("\n")[0][:200]
