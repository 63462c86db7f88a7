"""Bundles: only a whole one that fits the program is served."""

import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.errors import BundleError
from worker.sv2tts.bundle import CHUNK_SAMPLES, MANIFEST, Bundle
from worker.sv2tts.fit import GRAPHS, VOCODERS
from worker.sv2tts.weights import find_unfit_weight

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


def replace(root: Path, name: str, content: bytes) -> None:
    """Put other bytes in a file's place, and into the manifest what is true of them."""
    (root / name).unlink()
    (root / name).write_bytes(content)
    entry = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    edit(root, lambda manifest: manifest["files"][name].update(entry))


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
    assert set(VOCODERS) < set(GRAPHS)


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


@pytest.mark.parametrize("number", [None, 0, 1, 3])
def test_another_format_is_refused(copy: Path, number: int | None) -> None:
    """A manifest of another format is refused with both numbers."""
    edit(copy, lambda manifest: manifest.update(format=number))
    assert f"has format {number}, this program reads format 2" in refusal(copy)


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
    """All five graphs must be in the manifest, the cheaper vocoder too."""
    edit(copy, lambda manifest: manifest["files"].pop("vocoder_16k.onnx"))
    assert "does not list vocoder_16k.onnx" in refusal(copy)


def test_a_file_that_the_manifest_does_not_know_is_named(copy: Path) -> None:
    """Weights beside those of the bundle belong to another one."""
    (copy / "vocoder_8k.onnx").write_bytes(b"")
    assert refusal(copy) == "vocoder_8k.onnx is not in the manifest"


@pytest.mark.parametrize("name", ["../encoder.onnx", "/etc/passwd", "run.sh"])
def test_a_manifest_leads_nowhere_else(copy: Path, name: str) -> None:
    """Only weights inside the folder can be listed."""
    edit(copy, lambda manifest: manifest["files"].update({name: {}}))
    assert "no file of a bundle" in refusal(copy)


def test_both_vocoders_say_their_rate(copy: Path) -> None:
    """The manifest names the sample rate inside each vocoder; other ones are refused."""
    assert Bundle.load(copy).manifest["vocoders"] == {
        "vocoder": {"internal_rate": 24000},
        "vocoder_16k": {"internal_rate": 16000},
    }
    edit(copy, lambda manifest: manifest["vocoders"]["vocoder_16k"].update(internal_rate=8000))
    assert refusal(copy).startswith("vocoders is")


@pytest.mark.parametrize(
    ("graph", "side", "tensor", "reason"),
    [
        ("encoder", "outputs", "embedding", "encoder gives embedding ['batch', 7], which must end with 256"),
        ("synthesizer_encoder", "inputs", "embedding", "which must end with 256, embedding_size 256"),
        ("synthesizer_encoder", "outputs", "memory", "but synthesizer_decoder takes memory ['batch', 'symbols', 256]"),
        ("synthesizer_decoder", "inputs", "keys", "synthesizer_encoder gives keys ['batch', 'symbols', 128]"),
        ("synthesizer_decoder", "outputs", "mel", "which must end with 80, n_mels 80"),
        ("synthesizer_decoder", "inputs", "frame", "synthesizer_decoder gives next_frame ['batch', 80]"),
        ("synthesizer_decoder", "outputs", "next_decoder_h", "but synthesizer_decoder takes decoder_h"),
        ("vocoder", "inputs", "mel", "which must end with 80, n_mels 80"),
        ("vocoder", "inputs", "cache", "vocoder gives next_cache"),
        ("vocoder_16k", "inputs", "mel", "which must end with 80, n_mels 80"),
        ("vocoder_16k", "outputs", "next_cache", "but vocoder_16k takes cache"),
        ("vocoder_16k", "outputs", "noise", "which must end with 193, the bins at 16000 Hz"),
    ],
)
def test_graphs_must_fit_each_other(copy: Path, graph: str, side: str, tensor: str, reason: str) -> None:
    """A width that one graph gives and another cannot take is refused with both."""
    edit(copy, lambda manifest: manifest["shapes"][graph][side][tensor].__setitem__(-1, 7))
    assert reason in refusal(copy)


def test_a_tensor_that_nothing_gives_is_named(copy: Path) -> None:
    """A decoder that waits for what the encoder does not give is refused."""
    edit(copy, lambda manifest: manifest["shapes"]["synthesizer_encoder"]["outputs"].pop("keys"))
    assert refusal(copy) == "synthesizer_encoder has no tensor keys"


@pytest.mark.parametrize("shapes", [7, {"inputs": 7}, {"inputs": {"mel": 7}, "outputs": {}}, []])
def test_shapes_that_are_none_are_refused(copy: Path, shapes: object) -> None:
    """A manifest of the right format with nonsense in it is a bundle error."""
    edit(copy, lambda manifest: manifest["shapes"].update(vocoder=shapes))
    assert refusal(copy)


@pytest.mark.parametrize("name", sorted(f"{graph}.onnx" for graph in GRAPHS))
@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_one_weight_that_is_no_number_is_noticed(copy: Path, name: str, number: float) -> None:
    """A single NaN or infinity among the weights of any graph is refused by name, whatever the checksum says."""
    content = bytearray((copy / name).read_bytes())
    # Most of a graph is its weights in half precision: there are some in its middle, at odd or even places.
    half = len(content) // 2
    for place in (half, half + 17):
        content[place : place + 16] = struct.pack("<e", number) * 8
    replace(copy, name, bytes(content))
    reason = refusal(copy)
    assert reason.startswith(f"{name}: weight ")
    assert reason.endswith("holds a number that is not finite")


def test_weights_for_training_are_looked_into(copy: Path) -> None:
    """A weight to go on from that is no number is refused as well."""
    content = bytearray((copy / "vocoder_16k.safetensors").read_bytes())
    content[-2:] = struct.pack("<e", float("nan"))
    replace(copy, "vocoder_16k.safetensors", bytes(content))
    assert refusal(copy).startswith("vocoder_16k.safetensors: weight ")


@pytest.mark.parametrize("content", [b"", b"\x00", b"<html>not found</html>", b"\xff" * 64, b"\x0a\xff\xff\xff\x7f"])
@pytest.mark.parametrize("name", ["encoder.onnx", "vocoder.safetensors"])
def test_a_file_that_is_something_else_is_refused(copy: Path, name: str, content: bytes) -> None:
    """A file that is no graph or no weights is refused though the manifest knows it."""
    replace(copy, name, content)
    assert refusal(copy).startswith(f"{name} holds no weights that can be read")


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(["a.onnx", "a.safetensors"]), st.binary(max_size=200))
def test_no_bytes_upset_the_search_for_weights(name: str, content: bytes) -> None:
    """Whatever a file holds, it is looked through or called unreadable."""
    try:
        assert find_unfit_weight(name, content) is None or content
    except ValueError as refused:
        assert str(refused)


def test_a_graph_that_the_runtime_cannot_open_is_refused(copy: Path) -> None:
    """A graph with an operator that the runtime does not know is a bundle error with the runtime's version."""
    content = (copy / "vocoder_16k.onnx").read_bytes()
    replace(copy, "vocoder_16k.onnx", content.replace(b"MatMul", b"MatMux"))
    with pytest.raises(BundleError, match=r"ONNX Runtime \d+\.\d+.* cannot open vocoder_16k\.onnx"):
        Bundle.load(copy).session("vocoder_16k")


def test_a_graph_with_other_tensors_is_not_opened(copy: Path) -> None:
    """A session is only given when the graph's tensors are those of the manifest."""
    edit(copy, lambda manifest: manifest["shapes"]["encoder"]["inputs"].update(extra=[1]))
    with pytest.raises(BundleError, match=r"encoder\.onnx are not those"):
        Bundle.load(copy).session("encoder")
