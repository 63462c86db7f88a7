"""The way into service: a bundle takes the place of another only if it passes the gate.

    python -m worker.training.promote --candidate DIR --service bundles/base [--keep DIR] [--check]

A candidate is refused when it cannot be loaded or speaks nonsense numbers, when it is too large, when its evaluation is
of other files or not the one in its manifest, and by the rules of :mod:`worker.training.judging.gate`. Otherwise it is
copied beside the folder in service and takes its name; the earlier bundle moves to `--keep`, or goes. `--check` moves
nothing.
"""

import argparse
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from worker.errors import WorkerError
from worker.sv2tts.bundle import EMBEDDING_SIZE, MANIFEST, Bundle
from worker.sv2tts.encoder import ENCODER_RATE, SpeakerEncoder
from worker.sv2tts.fit import VOCODERS
from worker.sv2tts.vocoder import Vocoder
from worker.training.judging.errors import JudgingError
from worker.training.judging.gate import RULES, tabulate, weigh
from worker.training.judging.record import JSON, MARKDOWN
from worker.training.judging.report import FORMAT
from worker.training.judging.speakers import Clone

MOST_BYTES = 45_000_000
_CARD = "MODEL_CARD.md"
_PROBE = "Is this the voice that will be in service?"
_JUDGE_AGAIN = "run `voice evaluate --record` on exactly this bundle"
EXIT_REFUSED = 1

Evaluation = Mapping[str, Any]


def load_bundle(root: Path) -> Bundle:
    """Verify a folder and weigh it; raises BundleError and JudgingError for one that may not be served."""
    bundle = Bundle.load(root)
    size = sum(path.stat().st_size for path in list_files(root, bundle))
    if size > MOST_BYTES:
        fix = "leave out weights to go on training from, or make a network smaller"
        raise JudgingError(root, f"has {size} bytes, more than {MOST_BYTES}", fix)
    return bundle


def try_graphs(bundle: Bundle) -> None:
    """Embed and speak with every graph; raises BundleError and JudgingError when one gives nonsense."""
    noise = np.random.default_rng(1).standard_normal(2 * ENCODER_RATE, np.float32) * np.float32(0.1)
    _check_finite(bundle.root, "encoder", SpeakerEncoder(bundle).embed(noise))
    voice = np.full(EMBEDDING_SIZE, EMBEDDING_SIZE**-0.5, np.float32)
    for graph in VOCODERS:
        _check_finite(bundle.root, graph, Clone(bundle, Vocoder(bundle, graph=graph)).speak(_PROBE, voice).wav)


def _check_finite(root: Path, name: str, values: np.ndarray[Any, Any]) -> None:
    if not np.isfinite(values).all() or not np.any(values):
        raise JudgingError(root, f"{name} gives silence or numbers that are not finite", "train or export it again")


def list_files(root: Path, bundle: Bundle) -> list[Path]:
    """What belongs to a bundle: manifest, listed files, report and model card, as far as they are there."""
    names = (MANIFEST, *bundle.manifest["files"], JSON, MARKDOWN, _CARD)
    return [root / name for name in names if (root / name).exists()]


def read_evaluation(path: Path, root: Path) -> Evaluation:
    """The evaluation of the graphs in a folder; raises JudgingError when it is of others, or none at all."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise JudgingError(path, f"is no evaluation that can be read ({problem})", _JUDGE_AGAIN) from problem
    kinds = {"graphs": dict, "figures": dict, "intervals": dict, "material": dict, "sentences": list}
    fits = isinstance(found, dict) and all(isinstance(found.get(key), kind) for key, kind in kinds.items())
    if not fits or found.get("format") != FORMAT:
        raise JudgingError(path, "has not the form of an evaluation", _JUDGE_AGAIN)
    there = {graph.name: hashlib.sha256(graph.read_bytes()).hexdigest() for graph in root.glob("*.onnx")}
    other = sorted(
        name for name in there.keys() | found["graphs"].keys() if there.get(name) != found["graphs"].get(name)
    )
    if other:
        raise JudgingError(
            path, f"is the evaluation of other files than those in {root} ({', '.join(other)})", _JUDGE_AGAIN
        )
    return dict(found)


def check_manifest(root: Path, bundle: Bundle, evaluation: Evaluation) -> None:
    """Raises JudgingError when the manifest tells other figures than the evaluation."""
    told = bundle.manifest.get("figures", {}).get("speech", {})
    for name in (rule.figure for rule in RULES):
        if told.get(name) != evaluation["figures"].get(name):
            reason = f"the manifest says {name} {told.get(name)}, the evaluation {evaluation['figures'].get(name)}"
            raise JudgingError(root, reason, _JUDGE_AGAIN)


def check_material(candidate: Evaluation, service: Evaluation) -> None:
    """Raises JudgingError when two evaluations were not made with the same people, sentences and recogniser."""
    for key in sorted(candidate["material"].keys() | service["material"].keys()):
        one, other = candidate["material"].get(key), service["material"].get(key)
        if one != other:
            fix = "evaluate both with the same --people, --sentences and --recogniser"
            raise JudgingError("the evaluations", f"do not compare: {key} is {one} and {other}", fix)


def install(bundle: Bundle, evaluation: Path, service: Path, keep: Path | None) -> None:
    """Copy a bundle beside `service` and give it that name; the earlier one becomes `keep`, or goes.

    Raises JudgingError when `keep` is taken, OSError when the disk is full; then the earlier one is still in its place.
    """
    if keep is not None and keep.exists():
        raise JudgingError(keep, "exists already", "name another folder with --keep, or remove it")
    fresh, old = (service.with_name(f".{service.name}.{word}-{os.getpid()}") for word in ("new", "old"))
    try:
        fresh.mkdir(parents=True)
        for path in list_files(bundle.root, bundle):
            shutil.copyfile(path, fresh / path.name)
        report = {JSON: evaluation, MARKDOWN: evaluation.with_suffix(".md")}
        for name, path in report.items():
            if path.exists():
                shutil.copyfile(path, fresh / name)
        Bundle.load(fresh)
        _exchange(fresh, service, keep or old)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _exchange(fresh: Path, service: Path, old: Path) -> None:
    """`service` becomes `old` and `fresh` becomes `service`, or nothing changes."""
    served = service.exists()
    if served:
        service.rename(old)
    try:
        fresh.rename(service)
    except OSError:
        if served:
            old.rename(service)
        raise


def promote(options: argparse.Namespace) -> bool:
    """Judge, and unless it is only a check, install; whether the candidate passes."""
    candidate, service = options.candidate.resolve(), options.service.resolve()
    if candidate == service and not options.check:
        raise JudgingError(candidate, "is in service already", "name another folder with --candidate, or add --check")
    bundle, path = load_bundle(candidate), options.evaluation or candidate / JSON
    evaluation = read_evaluation(path, candidate)
    check_manifest(candidate, bundle, evaluation)
    before = None
    if (service / MANIFEST).exists():
        before = read_evaluation(options.service_evaluation or service / JSON, service)
        check_material(evaluation, before)
    try:
        lines = weigh(evaluation, before)
    except (KeyError, TypeError, ValueError) as problem:
        raise JudgingError("the evaluations", f"cannot be compared ({problem!r})", _JUDGE_AGAIN) from problem
    print_table(tabulate(lines))
    faults = [line for line in lines if line.fault]
    if faults:
        print(f"refused: {len(faults)} of {len(lines)} figures", file=sys.stderr)
        return False
    try_graphs(bundle)
    if not options.check:
        install(bundle, path, service, options.keep)
        print(f"in service: {service}")
    return True


def print_table(rows: list[tuple[str, ...]]) -> None:
    """Rows in columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def main(argv: list[str] | None = None) -> int:
    """The command line; its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m worker.training.promote", description="Put a bundle into service if it passes the gate."
    )
    parser.add_argument("--candidate", type=Path, required=True, help="folder of the bundle that wants in")
    parser.add_argument("--service", type=Path, required=True, help="folder of the bundle in service")
    parser.add_argument("--evaluation", type=Path, help=f"the candidate's report; else its {JSON}")
    parser.add_argument("--service-evaluation", type=Path, help=f"report of the bundle in service; else its {JSON}")
    parser.add_argument("--keep", type=Path, help="where the earlier bundle goes; a folder that is not there yet")
    parser.add_argument("--check", action="store_true", help="judge only, change nothing")
    try:
        return 0 if promote(parser.parse_args(argv)) else EXIT_REFUSED
    except WorkerError as problem:
        print(f"refused: {problem}", file=sys.stderr)
    except OSError as problem:
        where = problem.filename or "the disk"
        print(f"{where}: {problem.strerror}; nothing was changed: mend it and run the command again", file=sys.stderr)
    return EXIT_REFUSED


if __name__ == "__main__":
    sys.exit(main())
