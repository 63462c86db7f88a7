"""`./dev voice train`: the command line of the pipeline."""

import argparse
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from worker.errors import TrainingError, WorkerError
from worker.sv2tts.bundle import Bundle
from worker.training.pipeline.engine import open_folder, run_course
from worker.training.pipeline.progress import say
from worker.training.pipeline.recipe import Recipe
from worker.training.pipeline.sources import find_sources
from worker.training.pipeline.stages import TRAINING, Stage
from worker.training.pipeline.state import RunState
from worker.training.pipeline.workflow import plan_training

EXIT_FAILED, EXIT_INTERRUPTED = 1, 130
_MOST_HOURS, _MOST_SEED, _MOST_JOBS = 1000.0, 9999, 64
_FAST_HALVES = ("avx512_bf16", "amx_bf16")


def make_parser() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="./dev voice train", description="Make a voice model, from nothing to a bundle."
    )
    parser.add_argument("--out", type=Path, required=True, help="the run's folder; the result is OUT/bundle")
    parser.add_argument("--hours", type=positive("--hours", _MOST_HOURS), default=3.0, help="the whole run's time (3)")
    parser.add_argument("--data", type=Path, help="folder of recordings with transcripts; without: the teachers alone")
    parser.add_argument("--seed", type=whole(0, _MOST_SEED), default=1)
    parser.add_argument("--jobs", type=whole(1, _MOST_JOBS), help="processes at once; all cores when left out")
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--bundle", type=Path, help="begin from the weights of this bundle")
    start.add_argument("--from-scratch", action="store_true", help="begin from nothing, as is done without --bundle")
    parser.add_argument("--styles", type=Path, help="Kokoro's style files; fetched with npm when left out")
    parser.add_argument("--no-kokoro", action="store_true", help="do without the slow natural teacher")
    parser.add_argument("--people", type=Path, help="recordings to judge with: SPEAKER-*.flac and transcripts.tsv")
    parser.add_argument("--recogniser", type=Path, help="folder of a CTranslate2 Whisper to judge with")
    parser.add_argument("--until", choices=[str(stage) for stage in TRAINING], help="stop after this stage")
    return parser


def positive(name: str, most: float) -> Callable[[str], float]:
    """Reads a number above zero."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if not 0 < value <= most:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a number above 0, at most {most:g}: {name} 3 for example"
            )
        return value

    return read


def whole(least: int, most: int) -> Callable[[str], int]:
    """Reads a whole number."""

    def read(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
        return int(text)

    return read


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; its exit status."""
    options = make_parser().parse_args(argv)
    return guard(lambda: train(options))


def guard(work: Callable[[], None]) -> int:
    """Run a command; faults become a sentence, and Ctrl-C and SIGTERM end it in order."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        work()
    except WorkerError as problem:
        say(str(problem))
        return EXIT_FAILED
    except OSError as problem:
        say(f"{problem.filename or 'The run'}: {problem.strerror}; what is done is kept, run the same command again.")
        return EXIT_FAILED
    except KeyboardInterrupt:
        say("Interrupted; run the same command again to go on.")
        return EXIT_INTERRUPTED
    return 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def train(options: argparse.Namespace) -> None:
    """Begin a run or go on with it. Raises TrainingError when it cannot."""
    check_paths(options)
    found = find_sources(options.data) if options.data else None
    for remark in found.remarks if found else ():
        say(remark)
    with open_folder(options.out) as lock:
        state = RunState.open(options.out, describe(options, options.out), TRAINING)
        recipe = Recipe(
            folder=options.out.resolve(),
            hours=options.hours,
            seed=options.seed,
            jobs=int(state.options["jobs"]),
            sources=found.sources if found else (),
            people=options.people or (found.people if found else None),
            text=found.prompts if found else None,
            start=options.bundle,
            styles=options.styles,
            recogniser=options.recogniser,
            kokoro=not options.no_kokoro,
            half=has_fast_halves(),
        )
        state.save()
        run_course(plan_training(recipe), state, lock, options.until)
    finish(options.out, state)


def describe(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The options that a run is known by; the cores are those of the run that is there, if none are asked for."""
    paths = {name: getattr(options, name) for name in ("data", "bundle", "styles", "people", "recogniser")}
    told = {name: str(path.resolve()) if path else None for name, path in paths.items()}
    jobs = options.jobs or RunState.stored_jobs(folder) or count_cores()
    return {"hours": options.hours, "seed": options.seed, "jobs": jobs, "no-kokoro": options.no_kokoro, **told}


def check_paths(options: argparse.Namespace) -> None:
    """Raises TrainingError when something that was named is not there, BundleError for a bundle that is not whole."""
    for name in ("styles", "people", "recogniser"):
        path = getattr(options, name)
        if path is not None and not path.is_dir():
            raise TrainingError(f"--{name} {path} is not a folder")
    if options.bundle is not None:
        Bundle.load(options.bundle)


def count_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def has_fast_halves() -> bool:
    """Whether the processor multiplies in bfloat16."""
    info = Path("/proc/cpuinfo")
    return info.exists() and any(flag in info.read_text(encoding="utf-8") for flag in _FAST_HALVES)


def finish(folder: Path, state: RunState) -> None:
    """Say what there is now."""
    pending = state.pending()
    if pending:
        say(f"Stopped before {Stage(pending[0])}; run the same command without --until to go on.")
        return
    say(f"{folder / 'bundle'} is a bundle; its figures are in MODEL_CARD.md there.")
    say(f"Hear it: TIMBRELAY_BUNDLE={folder / 'bundle'} ./dev demo")
