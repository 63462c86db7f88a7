"""The model card of a bundle: one page from its manifest, its evaluation and what the run remembers.

python -m worker.training.pipeline.card --run OUT
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from worker.sv2tts.bundle import MANIFEST
from worker.training.pipeline.curves import last_row
from worker.training.pipeline.state import FILE

CARD = "MODEL_CARD.md"
_SPEECH_BYTES_S = 48_000
_CURVES = {
    "synthesizer": "losses.csv",
    "sharpened": "losses.csv",
    "vocoder": "log.csv",
    "tuned": "log.csv",
    "polished": "log.csv",
}


def write_card(run: Path) -> Path:
    """Write the card into the run's bundle; its path."""
    manifest = json.loads((run / "bundle" / MANIFEST).read_text(encoding="utf-8"))
    state = json.loads((run / FILE).read_text(encoding="utf-8"))
    parts = (head(manifest), describe_files(manifest), describe_speech(run), describe_stages(run, state))
    path = run / "bundle" / CARD
    path.write_text("\n\n".join((*parts, describe_figures(manifest))) + "\n", encoding="utf-8")
    return path


def head(manifest: Mapping[str, Any]) -> str:
    """What it is."""
    milliseconds = 1000 * manifest["chunk_samples"] / manifest["sample_rate"]
    return (
        f"# Voice model, version {manifest['version']}\n\n"
        "Speaks English sentences in the voice of a reference recording of 5 to 10 seconds, streaming in chunks of "
        f"{milliseconds:.0f} ms at {manifest['sample_rate']} Hz. Made by `./dev voice train`. Numbers, checksums and "
        f"tensor shapes: `{MANIFEST}`."
    )


def describe_files(manifest: Mapping[str, Any]) -> str:
    """Each file with its size, licence and source."""
    rows = [
        f"| `{name}` | {entry['bytes'] / 1e6:.1f} MB | {entry['licence']} | {entry['source']} |"
        for name, entry in manifest["files"].items()
    ]
    return "\n".join(["## Files", "", "| file | size | licence | source |", "|---|---|---|---|", *rows])


def describe_speech(run: Path) -> str:
    """How much speech there was to learn from."""
    folders = [run / "data" / name for name in ("pseudo", "kokoro")]
    people = run / "data" / "people"
    folders += sorted(people.iterdir()) if people.exists() else []
    rows = []
    for folder in folders:
        sizes = [path.stat().st_size for path in folder.glob("*.npz")] if folder.exists() else []
        if sizes:
            rows.append(f"| {folder.name} | {len(sizes)} | {sum(sizes) / _SPEECH_BYTES_S / 3600:.2f} h |")
    return "\n".join(["## Learnt from", "", "| what | utterances | speech |", "|---|---|---|", *rows])


def describe_stages(run: Path, state: Mapping[str, Any]) -> str:
    """How the run went: options, time and last losses."""
    told = ", ".join(f"{name} {value}" for name, value in state["options"].items() if _is_number(value))
    rows = [
        f"| {name} | {entry['status']} | {entry['seconds'] / 60:.1f} min | {entry['note']} |"
        for name, entry in state["stages"].items()
        if name != "card"
    ]
    curves = {name: last_row(run / name / file) for name, file in _CURVES.items()}
    ends = [
        f"`{name}`: step {row[0]:.0f}, losses {', '.join(f'{value:.3f}' for value in row[1:] if value < 100)}"
        for name, row in curves.items()
        if row
    ]
    table = ["| stage | state | time | |", "|---|---|---|---|", *rows]
    return "\n".join([f"## The run\n\n{told}.\n", *table, "", *(f"- {end}" for end in ends)])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def describe_figures(manifest: Mapping[str, Any]) -> str:
    """What was measured."""
    figures = manifest.get("figures", {}).get("speech", {})
    if not figures:
        return "## Measured\n\nNothing yet: `./dev voice evaluate` measures it."
    rows = [f"| {name.replace('_', ' ')} | {_show(value)} |" for name, value in sorted(figures.items())]
    note = "The encoder that conditions also judges the likeness: read it beside that of another person."
    return "\n".join(["## Measured", "", note, "", "| figure | value |", "|---|---|", *rows])


def _show(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Write the model card of a run.")
    parser.add_argument("--run", type=Path, required=True)
    print(write_card(parser.parse_args().run))


if __name__ == "__main__":
    main()
