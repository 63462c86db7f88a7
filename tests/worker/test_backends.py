"""worker.backends: one interface, several ways to run the graphs, and what is done when one is not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from worker.backends import choice
from worker.backends.choice import BACKENDS, choose_backend
from worker.backends.graph import Arrays, Graph
from worker.backends.onnx import OnnxBackend, provider_options
from worker.errors import BackendUnavailable
from worker.sv2tts.bundle import Bundle
from worker.sv2tts.speech import SpeechModel

BUNDLE = Bundle.load(Path(__file__).resolve().parents[2] / "bundles" / "base")
GRAPHS = ("synthesizer_encoder", "synthesizer_decoder", "vocoder")
HAS_CUDA = "CUDAExecutionProvider" in onnxruntime.get_available_providers()


def _load(**arguments: Any) -> SpeechModel:
    return SpeechModel(BUNDLE, **arguments)


def _feed(graph: Graph, batch: int) -> Arrays:
    """Something of every input, the same for a given graph."""
    rng = np.random.default_rng(0)
    feed: Arrays = {}
    for tensor in graph.inputs:
        array = tensor.zeros(batch=batch, symbols=12, frames=8)
        if tensor.kind is np.float32:
            array[...] = rng.standard_normal(array.shape) / 4
        feed[tensor.name] = array
    if "lengths" in feed:
        feed["lengths"][...] = 12
    return feed


@pytest.mark.parametrize("name", GRAPHS)
def test_every_output_has_the_shape_of_the_manifest(name: str) -> None:
    """All outputs by name, with the sizes that the manifest fixes, and the batch in front."""
    graph = OnnxBackend().open(BUNDLE, name)
    given = graph.run(_feed(graph, 3))
    assert list(given) == list(graph.outputs)
    for output, shape in BUNDLE.manifest["shapes"][name]["outputs"].items():
        found = given[output].shape
        assert found[0] == 3
        assert [size for size, fixed in zip(found, shape, strict=True) if isinstance(fixed, int)] == [
            size for size in shape if isinstance(size, int)
        ]


@pytest.mark.parametrize("name", GRAPHS)
def test_pytorch_says_what_onnx_runtime_says(name: str) -> None:
    """The networks with the bundle's weights give what its graphs give, to within the noise of half precision."""
    pytest.importorskip("torch", reason="needs the extra `training`")
    from worker.backends.pytorch import TorchBackend

    one, other = OnnxBackend().open(BUNDLE, name), TorchBackend(device="cpu").open(BUNDLE, name)
    feed = _feed(one, 2)
    for (output, expected), found in zip(one.run(feed).items(), other.run(feed).values(), strict=True):
        if output != "pitch":
            np.testing.assert_allclose(found, expected, rtol=0.05, atol=0.02, err_msg=output)


def test_tensorrt_is_told_every_shape() -> None:
    """Each input of each graph has a range, so that nothing is compiled in service."""
    for name in GRAPHS:
        options = provider_options("TensorrtExecutionProvider", BUNDLE, name)
        for bound in ("min", "opt", "max"):
            shapes = dict(part.split(":") for part in options[f"trt_profile_{bound}_shapes"].split(","))
            assert set(shapes) == set(BUNDLE.manifest["shapes"][name]["inputs"])
            assert all(size.isdigit() for shape in shapes.values() for size in shape.split("x"))


def test_pytorch_without_a_gpu_says_so() -> None:
    """Asked for the GPU where there is none, or without PyTorch, it raises with a reason and a fix."""
    from worker.backends.pytorch import TorchBackend

    with pytest.raises(BackendUnavailable, match="PyTorch"):
        TorchBackend()


@pytest.mark.skipif(HAS_CUDA, reason="this ONNX Runtime has CUDA")
@pytest.mark.parametrize("asked", ["cuda", "tensorrt", "torch"])
def test_what_is_not_there_is_passed_over_with_its_reason(asked: str) -> None:
    """A worker that is told to use a GPU it does not have serves from the CPU, and can say why."""
    chosen = choose_backend(asked, 1, _load)
    assert chosen.name == "cpu"
    assert asked in chosen.passed_over[asked]


def test_automatic_takes_the_fastest_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there seems to be a GPU all are tried, and what cannot be used is named."""
    monkeypatch.setattr(choice, "has_gpu", lambda: True)
    chosen = choose_backend("auto", 1, _load)
    assert {chosen.name, *chosen.passed_over} == set(BACKENDS)


def test_without_a_gpu_nothing_large_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU is taken, and the others are named with the reason."""
    monkeypatch.setattr(choice, "has_gpu", lambda: False)
    chosen = choose_backend("auto", 1, _load)
    assert chosen.name == "cpu"
    assert set(chosen.passed_over) == {"cuda", "tensorrt", "torch"}
