"""A bundle: the folder of graphs and the manifest that together are one voice model.

Nothing is served from a folder that is not whole: every file is checked against the manifest and looked into for
weights that are no numbers, and the manifest against the numbers this code was written for and against itself, before
the first graph is opened.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import onnxruntime
from onnxruntime import InferenceSession, SessionOptions

from worker.errors import BundleError
from worker.sv2tts.fit import GRAPHS, VOCODERS, find_misfit
from worker.sv2tts.mel import HOP_LENGTH, N_MELS, SAMPLE_RATE
from worker.sv2tts.weights import find_unfit_weight
from worker.text.phonemes import symbols_sha256

FORMAT = 2
MANIFEST = "manifest.json"
EMBEDDING_SIZE = 256
FRAMES_PER_STEP = 4
CHUNK_SAMPLES = 2 * FRAMES_PER_STEP * HOP_LENGTH

FIXED: Mapping[str, Any] = {
    "sample_rate": SAMPLE_RATE,
    "hop_length": HOP_LENGTH,
    "n_mels": N_MELS,
    "embedding_size": EMBEDDING_SIZE,
    "frames_per_step": FRAMES_PER_STEP,
    "chunk_samples": CHUNK_SAMPLES,
    "vocoders": {name: {"internal_rate": rate} for name, rate in VOCODERS.items()},
}
WEIGHT_SUFFIXES = (".onnx", ".safetensors")
_FETCH = "fetch or unpack the bundle again"
_UPDATE = "use a bundle and a program of the same release"
_EXPORT = "export the graph again from finite weights, then run worker.training.bundle_export"
_UNLISTED = "remove it, or write the manifest again with worker.training.bundle_export"


@dataclass(frozen=True, slots=True)
class Bundle:
    """A verified bundle. `checksum` is the SHA-256 of its manifest, which in turn holds those of the files."""

    root: Path
    manifest: Mapping[str, Any]
    checksum: str

    @classmethod
    def load(cls, root: Path) -> Self:
        """Verify the folder and return it; raises BundleError with the file, the reason and the fix."""
        raw = _read(root, MANIFEST)
        manifest = _parse(root, raw)
        verify_bundle(root, manifest)
        return cls(root, manifest, hashlib.sha256(raw).hexdigest())

    def session(self, name: str, threads: int = 1) -> InferenceSession:
        """A new session on the graph `name` of GRAPHS; raises BundleError when the runtime cannot open it or its
        tensors are not the manifest's."""
        session = open_graph(self.root, name, threads)
        if graph_shapes(session) != self.manifest["shapes"][name]:
            raise BundleError(self.root, f"the tensors of {name}.onnx are not those of the manifest", _FETCH)
        return session


def verify_bundle(root: Path, manifest: Mapping[str, Any]) -> None:
    """Check a folder against a manifest of the present format; raises BundleError for the first fault."""
    _check_numbers(root, manifest)
    _check_listing(root, manifest["files"])
    _check_shapes(root, manifest)
    for name, entry in manifest["files"].items():
        _check_file(root, name, entry)


def open_graph(root: Path, name: str, threads: int = 1) -> InferenceSession:
    """A session on `name`.onnx of a folder; raises BundleError when the runtime refuses it."""
    options = SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return InferenceSession(str(root / f"{name}.onnx"), options, providers=["CPUExecutionProvider"])
    except Exception as problem:  # the runtime's exceptions have no base of their own
        reason = f"ONNX Runtime {onnxruntime.__version__} cannot open {name}.onnx ({_first_line(problem)})"
        raise BundleError(root, reason, _FETCH) from problem


def graph_shapes(session: InferenceSession) -> dict[str, dict[str, list[int | str]]]:
    """Names and shapes of a graph's inputs and outputs as the manifest writes them; dynamic sizes are names."""
    return {
        "inputs": {tensor.name: list(tensor.shape) for tensor in session.get_inputs()},
        "outputs": {tensor.name: list(tensor.shape) for tensor in session.get_outputs()},
    }


def _first_line(problem: Exception) -> str:
    return str(problem).strip().partition("\n")[0][:200]


def _read(root: Path, name: str) -> bytes:
    try:
        return (root / name).read_bytes()
    except OSError as problem:
        raise BundleError(root, f"{name} cannot be read ({problem.strerror})", _FETCH) from problem


def _parse(root: Path, raw: bytes) -> dict[str, Any]:
    try:
        manifest = json.loads(raw)
    except (ValueError, RecursionError) as problem:
        raise BundleError(root, f"{MANIFEST} is not JSON ({problem})", _FETCH) from problem
    found = manifest.get("format") if isinstance(manifest, dict) else None
    if found != FORMAT:
        raise BundleError(root, f"{MANIFEST} has format {found}, this program reads format {FORMAT}", _UPDATE)
    for key in ("files", "shapes"):
        if not isinstance(manifest.get(key), dict):
            raise BundleError(root, f"{MANIFEST} has no '{key}'", _FETCH)
    return dict(manifest)


def _check_numbers(root: Path, manifest: Mapping[str, Any]) -> None:
    for key, needed in FIXED.items():
        if manifest.get(key) != needed:
            raise BundleError(root, f"{key} is {manifest.get(key)}, this program needs {needed}", _UPDATE)
    if manifest.get("symbols_sha256") != symbols_sha256():
        raise BundleError(root, "its phoneme symbols are not those of this program", _UPDATE)


def _check_listing(root: Path, files: Mapping[str, Any]) -> None:
    for name in GRAPHS:
        if f"{name}.onnx" not in files:
            raise BundleError(root, f"the manifest does not list {name}.onnx", _FETCH)
    for name, entry in files.items():
        if Path(name).name != name or not name.endswith(WEIGHT_SUFFIXES) or not isinstance(entry, dict):
            raise BundleError(root, f"the manifest lists {name!r}, which is no file of a bundle", _FETCH)
    for path in sorted(root.iterdir()):
        if path.name.endswith(WEIGHT_SUFFIXES) and path.name not in files:
            raise BundleError(root, f"{path.name} is not in the manifest", _UNLISTED)


def _check_file(root: Path, name: str, entry: Mapping[str, Any]) -> None:
    content = _read(root, name)
    if len(content) != entry.get("bytes"):
        raise BundleError(root, f"{name} has {len(content)} bytes, the manifest says {entry.get('bytes')}", _FETCH)
    if hashlib.sha256(content).hexdigest() != entry.get("sha256"):
        raise BundleError(root, f"{name} does not have the checksum of the manifest", _FETCH)
    try:
        fault = find_unfit_weight(name, content)
    except ValueError as problem:
        raise BundleError(root, f"{name} holds no weights that can be read ({problem})", _FETCH) from problem
    if fault:
        raise BundleError(root, f"{name}: {fault}", _EXPORT)


def _check_shapes(root: Path, manifest: Mapping[str, Any]) -> None:
    for name in GRAPHS:
        if name not in manifest["shapes"]:
            raise BundleError(root, f"{MANIFEST} has no shapes of {name}", _FETCH)
    try:
        misfit = find_misfit(manifest)
    except (AttributeError, KeyError, TypeError) as problem:
        raise BundleError(root, f"the shapes in {MANIFEST} have not the form of shapes", _FETCH) from problem
    if misfit:
        raise BundleError(root, misfit, _UPDATE)
