"""worker.training.bundle_export writes a manifest for what a worker would serve alone; needs the `training` extra."""

import json
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs the `training` extra")

from onnx import numpy_helper  # noqa: E402

from worker.errors import BundleError  # noqa: E402
from worker.sv2tts.bundle import MANIFEST, Bundle  # noqa: E402
from worker.training.bundle_export import LARGEST_BYTES, build_manifest  # noqa: E402

BASE = Path(__file__).parents[2] / "bundles" / "base"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The weights of the base bundle, without a manifest."""
    for file in BASE.iterdir():
        if file.suffix in (".onnx", ".safetensors"):
            (tmp_path / file.name).symlink_to(file)
    return tmp_path


def weights(numbers: int) -> bytes:
    """A file of weights to go on from, all zeros."""
    header = json.dumps({"w": {"dtype": "F16", "shape": [numbers], "data_offsets": [0, 2 * numbers]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(2 * numbers)


def test_a_manifest_makes_a_bundle_of_its_folder(copy: Path) -> None:
    """What is written is what a worker loads, with both vocoders, every licence and the figures."""
    manifest = build_manifest(copy, "2", {"speech": {"likeness": 0.5}})
    (copy / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    loaded = Bundle.load(copy).manifest
    assert loaded["vocoders"]["vocoder_16k"] == {"internal_rate": 16_000}
    assert loaded["figures"] == {"speech": {"likeness": 0.5}}
    assert all(entry["licence"] for entry in loaded["files"].values())


def test_a_folder_that_is_too_large_is_refused(copy: Path) -> None:
    """More than 45 MB in all is not exported."""
    file = copy / "vocoder_16k.safetensors"
    file.unlink()
    file.write_bytes(weights(LARGEST_BYTES // 2))
    with pytest.raises(BundleError, match=f"at most {LARGEST_BYTES} may be"):
        build_manifest(copy, "2", {})


def test_a_graph_that_cannot_be_opened_is_refused(copy: Path) -> None:
    """A graph that is cut off gets no manifest."""
    file = copy / "vocoder_16k.onnx"
    content = file.read_bytes()
    file.unlink()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(BundleError, match=r"cannot open vocoder_16k\.onnx"):
        build_manifest(copy, "2", {})


def test_a_graph_with_a_weight_that_is_no_number_is_refused(copy: Path) -> None:
    """A single NaN among the small weights, which stay in single precision, gets no manifest."""
    file = copy / "vocoder_16k.onnx"
    model = onnx.load(file)
    weight = next(one for one in model.graph.initializer if one.data_type == onnx.TensorProto.FLOAT and one.dims)
    values = numpy_helper.to_array(weight).copy()
    values.flat[-1] = np.nan
    weight.CopyFrom(numpy_helper.from_array(values, weight.name))
    file.unlink()
    onnx.save(model, file)
    with pytest.raises(BundleError, match=r"vocoder_16k\.onnx: weight .* not finite"):
        build_manifest(copy, "2", {})


def test_stray_weights_are_named(copy: Path) -> None:
    """Weights that are no part of a bundle do not slip into its folder."""
    (copy / "old_vocoder.onnx").write_bytes(b"")
    with pytest.raises(BundleError, match=r"old_vocoder\.onnx is not in the manifest"):
        build_manifest(copy, "2", {})
