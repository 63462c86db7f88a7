"""What a bundle was really trained on, written into its manifest; a bundle that does not load is refused.

python -m worker.training.pipeline.sealing --bundle DIR --origin TEXT [--origin TEXT] [--start NAME]
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from worker.sv2tts.bundle import MANIFEST, Bundle

_TRAINED = ("synthesizer", "vocoder")


def describe_origins(origins: Sequence[str], start: str | None) -> str:
    """The sentence of a file that was trained on these."""
    begun = f"begun from the weights of the bundle '{start}', then " if start else ""
    head = ", ".join(origins[:-1])
    return f"{begun}trained on {f'{head} and ' if head else ''}{origins[-1]}"


def seal(root: Path, origins: Sequence[str], start: str | None, only: Sequence[str] = _TRAINED) -> None:
    """Write the sources of the trained files into the manifest. Raises BundleError when the bundle is not whole."""
    path = root / MANIFEST
    manifest = json.loads(path.read_text(encoding="utf-8"))
    for name, entry in manifest["files"].items():
        if name.startswith(tuple(only)):
            entry["source"] = describe_origins(origins, start)
    part = root / f"{MANIFEST}.part"
    part.write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    part.rename(path)
    Bundle.load(root)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Write what a bundle was trained on into its manifest.")
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--origin", action="append", required=True)
    parser.add_argument("--start")
    parser.add_argument("--only", action="append", help="which files: those that begin with this (repeatable)")
    options = parser.parse_args()
    seal(options.bundle, options.origin, options.start, options.only or _TRAINED)


if __name__ == "__main__":
    main()
