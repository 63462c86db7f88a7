"""worker.training.half_weights and worker.training.weights; they need the `training` extra."""

from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs the `training` extra")
torch = pytest.importorskip("torch", reason="needs the `training` extra")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnxruntime import InferenceSession  # noqa: E402

from worker.training.half_weights import halve_weights  # noqa: E402
from worker.training.weights import load_weights, save_weights  # noqa: E402


def _graph(path: Path, matrix: np.ndarray) -> None:
    node = helper.make_node("MatMul", ["x", "matrix"], ["y"])
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 64]) for name in ("x", "y")]
    graph = helper.make_graph([node], "g", value[:1], value[1:], [numpy_helper.from_array(matrix, "matrix")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)


def test_a_graph_of_half_the_size_computes_the_same_to_three_digits(tmp_path: Path) -> None:
    """Halving is done once; a second time finds nothing to do."""
    path, random = tmp_path / "g.onnx", np.random.default_rng(1)
    _graph(path, random.standard_normal((64, 64)).astype(np.float32))
    x = random.standard_normal((3, 64)).astype(np.float32)
    size, before = path.stat().st_size, InferenceSession(path).run(None, {"x": x})[0]
    assert halve_weights(path) == 1
    assert halve_weights(path) == 0
    assert path.stat().st_size < 0.6 * size
    assert np.allclose(InferenceSession(path).run(None, {"x": x})[0], before, atol=2e-2)


def test_a_weight_beyond_half_precision_is_refused(tmp_path: Path) -> None:
    """Nothing becomes infinite in silence, and the file stays as it was."""
    path = tmp_path / "g.onnx"
    _graph(path, np.full((64, 64), 1e6, np.float32))
    content = path.read_bytes()
    with pytest.raises(ValueError, match="matrix"):
        halve_weights(path)
    assert path.read_bytes() == content


def test_a_weight_that_is_no_number_is_refused(tmp_path: Path) -> None:
    """A NaN is not stored in half precision either."""
    path, matrix = tmp_path / "g.onnx", np.zeros((64, 64), np.float32)
    matrix[3, 4] = np.nan
    _graph(path, matrix)
    with pytest.raises(ValueError, match=r"matrix .* not finite"):
        halve_weights(path)


def test_weights_come_back_into_a_network_of_their_shape_alone(tmp_path: Path) -> None:
    """What was saved loads, to half precision; another network is refused by name, and so are infinities."""
    network, path = torch.nn.Linear(8, 4), tmp_path / "w.safetensors"
    save_weights(network.state_dict(), path)
    other = torch.nn.Linear(8, 4)
    load_weights(other, path)
    assert torch.allclose(other.weight, network.weight, atol=1e-3)
    with pytest.raises(RuntimeError, match="weight"):
        load_weights(torch.nn.Linear(8, 5), path)
    with pytest.raises(ValueError, match="finite"):
        save_weights({"w": torch.tensor([1e9])}, path)
