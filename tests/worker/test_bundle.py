"""Bundles: only a whole one that fits the program is served."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from worker.errors import BundleError
from worker.sv2tts.bundle import CHUNK_SAMPLES, GRAPHS, MANIFEST, Bundle

BASE = Path(__file__).parents[2] / "bundles" / "base"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The base bundle with links for its files and a manifest that can be changed."""
    for file in BASE.iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / MANIFEST).unlink()
    (tmp_path / MANIFEST).write_bytes((BASE / MANIFEST).read_bytes())
    return tmp_path


def edit(root: Path, change: Callable[[dict[str, Any]], object]) -> None:
    manifest = json.loads((root / MANIFEST).read_text(encoding="utf-8"))
    change(manifest)
    (root / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")


def refusal(root: Path) -> str:
    with pytest.raises(BundleError) as refused:
        Bundle.load(root)
    assert refused.value.code == "bundle_invalid"
    assert refused.value.fix in str(refused.value)
    return refused.value.reason


def test_the_base_bundle_is_whole() -> None:
    """The bundle in the repository loads, is under 45 MB, and every graph opens with the manifest's tensors."""
    bundle = Bundle.load(BASE)
    assert sum(entry["bytes"] for entry in bundle.manifest["files"].values()) < 45_000_000
    assert bundle.manifest["chunk_samples"] == CHUNK_SAMPLES == 1920
    for name in GRAPHS:
        assert bundle.session(name).get_inputs()


def test_every_file_names_its_licence_and_source() -> None:
    """The manifest says of every file what it is licensed under and where it comes from."""
    for entry in Bundle.load(BASE).manifest["files"].values():
        assert entry["licence"]
        assert entry["source"]


def test_every_graph_takes_any_batch() -> None:
    """The first dimension of every tensor of every graph is dynamic."""
    for graph in Bundle.load(BASE).manifest["shapes"].values():
        for tensors in graph.values():
            assert all(isinstance(shape[0], str) for shape in tensors.values())


def test_the_checksum_is_that_of_the_manifest(copy: Path) -> None:
    """Two copies of a bundle have one checksum, and another manifest has another."""
    assert Bundle.load(copy).checksum == Bundle.load(BASE).checksum
    edit(copy, lambda manifest: manifest.update(version="other"))
    assert Bundle.load(copy).checksum != Bundle.load(BASE).checksum


def test_a_changed_byte_is_noticed(copy: Path) -> None:
    """A graph of the right size with one other byte is refused by name."""
    graph = copy / "encoder.onnx"
    content = bytearray(graph.read_bytes())
    content[len(content) // 2] ^= 1
    graph.unlink()
    graph.write_bytes(content)
    assert "encoder.onnx does not have the checksum" in refusal(copy)


def test_a_cut_file_is_noticed(copy: Path) -> None:
    """A graph that was not copied to its end is refused with both sizes."""
    graph = copy / "encoder.onnx"
    content = graph.read_bytes()
    graph.unlink()
    graph.write_bytes(content[:1000])
    assert f"1000 bytes, the manifest says {len(content)}" in refusal(copy)


@pytest.mark.parametrize("name", ["vocoder.onnx", MANIFEST])
def test_a_missing_file_is_named(copy: Path, name: str) -> None:
    """The reason names the file that is not there."""
    (copy / name).unlink()
    assert f"{name} cannot be read" in refusal(copy)


def test_a_manifest_that_is_not_json_is_refused(copy: Path) -> None:
    """A damaged manifest is a bundle error, not a parser's."""
    (copy / MANIFEST).write_text("{", encoding="utf-8")
    assert "not JSON" in refusal(copy)


@pytest.mark.parametrize("number", [None, 0, 2])
def test_another_format_is_refused(copy: Path, number: int | None) -> None:
    """A manifest of another format is refused with both numbers."""
    edit(copy, lambda manifest: manifest.update(format=number))
    assert f"has format {number}, this program reads format 1" in refusal(copy)


@pytest.mark.parametrize("key", ["sample_rate", "hop_length", "n_mels", "embedding_size", "frames_per_step"])
def test_other_rates_are_refused(copy: Path, key: str) -> None:
    """A bundle made for other rates or sizes is refused by the name of the number."""
    edit(copy, lambda manifest: manifest.update({key: 7}))
    assert refusal(copy).startswith(f"{key} is 7, this program needs")


def test_other_symbols_are_refused(copy: Path) -> None:
    """A synthesizer trained on another phoneme alphabet would speak nonsense, so its bundle is refused."""
    edit(copy, lambda manifest: manifest.update(symbols_sha256="0" * 64))
    assert "phoneme symbols" in refusal(copy)


def test_a_graph_that_is_not_listed_is_noticed(copy: Path) -> None:
    """All four graphs must be in the manifest."""
    edit(copy, lambda manifest: manifest["files"].pop("vocoder.onnx"))
    assert "does not list vocoder.onnx" in refusal(copy)


def test_graphs_must_fit_each_other(copy: Path) -> None:
    """A vocoder for another number of mel bands is refused."""
    edit(copy, lambda manifest: manifest["shapes"]["vocoder"]["inputs"]["mel"].__setitem__(2, 100))
    assert "must end with n_mels 80" in refusal(copy)


def test_a_graph_with_other_tensors_is_not_opened(copy: Path) -> None:
    """A session is only given when the graph's tensors are those of the manifest."""
    edit(copy, lambda manifest: manifest["shapes"]["encoder"]["inputs"].update(extra=[1]))
    with pytest.raises(BundleError, match=r"encoder\.onnx are not those"):
        Bundle.load(copy).session("encoder")
