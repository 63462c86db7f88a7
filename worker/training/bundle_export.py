"""The manifest of a bundle, from the graphs in its folder.

    python -m worker.training.bundle_export --bundle bundles/base --version 1 [--figures FIGURES.json]

Stores the graphs' weights in half precision first, and writes no manifest that a worker would refuse. Can be run again
whenever a graph has changed; the figures of the earlier manifest stay unless given anew.
"""

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

from worker.errors import BundleError
from worker.sv2tts.bundle import FIXED, FORMAT, MANIFEST, graph_shapes, open_graph, verify_bundle
from worker.sv2tts.fit import GRAPHS
from worker.text.phonemes import symbols_sha256
from worker.training.half_weights import halve_weights

LARGEST_BYTES = 45_000_000
"""The most that a bundle may hold, graphs and weights to go on from together."""

_PSEUDO_SPEAKERS = "pseudo-speakers rendered with hibari-tts 0.2.1 (Apache-2.0)"
_LIBRISPEECH = "LibriSpeech train-clean-100 (CC BY 4.0, V. Panayotov et al., openslr.org/12)"
_PIPER = "speech of Piper's LibriTTS-R and VCTK voices (samples Apache-2.0, corpora CC BY 4.0)"
_KOKORO = "mixed voices rendered with Kokoro-82M v1.0 (Apache-2.0)"
_SYNTHESIZER = f"trained on {_PSEUDO_SPEAKERS}, {_KOKORO}, {_LIBRISPEECH} and {_PIPER}"
_VOCODER = f"trained on {_PSEUDO_SPEAKERS}, {_LIBRISPEECH}, LJ Speech (public domain) and {_PIPER}"
_NARROW_VOCODER = f"distilled from vocoder.onnx on mels of the same: {_VOCODER}"
ORIGINS = {
    "encoder.onnx": ("Apache-2.0", "GE2E speaker encoder of Resemblyzer 0.1.4 (Resemble AI), converted to ONNX"),
    "synthesizer_encoder.onnx": ("Apache-2.0", _SYNTHESIZER),
    "synthesizer_decoder.onnx": ("Apache-2.0", _SYNTHESIZER),
    "vocoder.onnx": ("Apache-2.0", _VOCODER),
    "vocoder_16k.onnx": ("Apache-2.0", _NARROW_VOCODER),
    "synthesizer.safetensors": ("Apache-2.0", _SYNTHESIZER),
    "vocoder.safetensors": ("Apache-2.0", _VOCODER),
    "vocoder_16k.safetensors": ("Apache-2.0", _NARROW_VOCODER),
}


def describe_file(path: Path) -> dict[str, str | int]:
    """Checksum, size, licence and source of a graph."""
    content = path.read_bytes()
    licence, source = ORIGINS[path.name]
    checksum = hashlib.sha256(content).hexdigest()
    return {"sha256": checksum, "bytes": len(content), "licence": licence, "source": source}


def build_manifest(root: Path, version: str, figures: dict[str, Any]) -> dict[str, Any]:
    """The manifest of the folder.

    Raises FileNotFoundError when one of the graphs is not there, and BundleError when they could not be served: a graph
    that the runtime cannot open, parts that do not fit each other, weights that are no numbers, too many bytes.
    """
    manifest = {
        "format": FORMAT,
        "name": root.resolve().name,
        "version": version,
        **FIXED,
        "symbols_sha256": symbols_sha256(),
        "files": {path.name: describe_file(path) for path in _list_files(root)},
        "shapes": {name: graph_shapes(open_graph(root, name)) for name in GRAPHS},
        "figures": figures,
    }
    verify_bundle(root, manifest)
    size = sum(entry["bytes"] for entry in manifest["files"].values())
    if size > LARGEST_BYTES:
        fix = "leave out the .safetensors of a part, or make a network smaller"
        raise BundleError(root, f"its files have {size} bytes in all, at most {LARGEST_BYTES} may be", fix)
    return manifest


def _list_files(root: Path) -> list[Path]:
    """The graphs, and those weights to go on training from that are there."""
    weights = (root / name for name in ORIGINS if name.endswith(".safetensors"))
    return [*(root / f"{name}.onnx" for name in GRAPHS), *(path for path in weights if path.exists())]


def read_figures(root: Path, extra: Path | None) -> dict[str, Any]:
    """The figures of the manifest that is there, brought up to date with those of a file."""
    earlier = root / MANIFEST
    figures: dict[str, Any] = json.loads(earlier.read_text(encoding="utf-8"))["figures"] if earlier.exists() else {}
    return figures | (json.loads(extra.read_text(encoding="utf-8")) if extra else {})


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Write the manifest of a bundle.")
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--version", default="1")
    parser.add_argument("--figures", type=Path, help="JSON object of measured figures")
    options = parser.parse_args()
    for name in GRAPHS:
        halve_weights(options.bundle / f"{name}.onnx")
    manifest = build_manifest(options.bundle, options.version, read_figures(options.bundle, options.figures))
    text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    (options.bundle / MANIFEST).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
