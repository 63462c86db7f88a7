"""`./dev voice adapt`: fit the synthesizer of a bundle to recordings with transcripts.

    python -m worker.training.adapt --recordings DIR --out OUT [--minutes 10] [--rate 1e-3] [--warm-up 50]

`DIR` holds sound files and `transcripts.tsv`. Some recordings are held out and tell how alike the voice was before and
is after. The result is OUT/bundle, a whole one; the bundle that it began from stays as it is.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from worker.errors import TrainingError
from worker.sv2tts.bundle import Bundle
from worker.training.adapt_course import Adaptation, plan_adaptation
from worker.training.pipeline.command import count_cores, guard, has_fast_halves, positive, whole
from worker.training.pipeline.engine import open_folder, run_course
from worker.training.pipeline.progress import say
from worker.training.pipeline.stages import ADAPTING
from worker.training.pipeline.state import RunState
from worker.training.transcripts import Spoken, list_recordings

BASE = Path(__file__).parents[2] / "bundles" / "base"
LEAST_RECORDINGS = 6
_LEAST_HELD, _MOST_HELD, _HELD_SHARE = 2, 8, 0.15
_MOST_MINUTES, _MOST_STEPS, _MOST_JOBS, _MOST_SEED = 6000.0, 100_000, 64, 9999


def share(text: str) -> float:
    """Reads a share from 0 up to, but not with, 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to less than 1")
    return value


def make_parser() -> argparse.ArgumentParser:
    """The options."""
    about = "Fit the synthesizer of a bundle to recordings with transcripts."
    parser = argparse.ArgumentParser(prog="./dev voice adapt", description=about)
    parser.add_argument(
        "--recordings", type=Path, required=True, help="sound files and transcripts.tsv (name, tab, text)"
    )
    parser.add_argument("--out", type=Path, required=True, help="the run's folder; the result is OUT/bundle")
    parser.add_argument("--bundle", type=Path, default=BASE, help="the bundle to begin from; the shipped one")
    parser.add_argument("--minutes", type=positive("--minutes", _MOST_MINUTES), default=10.0, help="of training (10)")
    parser.add_argument("--rate", type=positive("--rate", 0.1), default=1e-3, help="peak learning rate (1e-3)")
    parser.add_argument("--warm-up", type=whole(1, _MOST_STEPS), default=50, help="steps until it (50)")
    parser.add_argument("--rehearse", type=share, default=0.3, help="share of batches from pseudo-speakers (0.3)")
    parser.add_argument("--pull", type=share, default=0.0, help="L2 pull to the starting weights (0)")
    parser.add_argument("--weight-decay", type=share, default=0.01, help="of the optimiser (0.01)")
    parser.add_argument("--several-speakers", action="store_true", help="names begin with the speaker and a dash")
    parser.add_argument("--seed", type=whole(0, _MOST_SEED), default=1)
    parser.add_argument("--jobs", type=whole(1, _MOST_JOBS), help="processes at once; else as many as cores")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; its exit status."""
    options = make_parser().parse_args(argv)
    return guard(lambda: adapt(options))


def adapt(options: argparse.Namespace) -> None:
    """Begin an adaptation or go on with it. Raises TrainingError or BundleError when it cannot."""
    Bundle.load(options.bundle)
    if not (options.bundle / "synthesizer.safetensors").exists():
        raise TrainingError(f"{options.bundle} has no synthesizer.safetensors to begin from: choose another --bundle")
    if not options.recordings.is_dir():
        raise TrainingError(f"--recordings {options.recordings} is not a folder")
    listing = list_recordings(options.recordings)
    for remark in listing.remarks:
        say(remark)
    held = hold_out(listing.recordings)
    with open_folder(options.out) as lock:
        state = RunState.open(options.out, describe(options), ADAPTING)
        adaptation = Adaptation(
            folder=options.out.resolve(),
            recordings=options.recordings.resolve(),
            count=len(listing.recordings) - len(held),
            held=held,
            base=options.bundle.resolve(),
            minutes=options.minutes,
            training=("--rate", options.rate, "--warm-up", options.warm_up, "--pull", options.pull,
                      "--weight-decay", options.weight_decay, *(("--half",) if has_fast_halves() else ())),
            rehearse=options.rehearse,
            several=options.several_speakers,
            seed=options.seed,
            jobs=int(state.options["jobs"]),
        )  # fmt: skip
        state.save()
        run_course(plan_adaptation(adaptation), state, lock)
    say((options.out / "adaptation.md").read_text(encoding="utf-8"))
    say(f"{options.out / 'bundle'} is a bundle. Hear it: TIMBRELAY_BUNDLE={options.out / 'bundle'} ./dev demo")


def hold_out(recordings: Sequence[Spoken]) -> tuple[str, ...]:
    """The names that are kept for judging, spread evenly. Raises TrainingError when there are too few recordings."""
    if len(recordings) < LEAST_RECORDINGS:
        few = f"there are only {len(recordings)} usable recordings"
        raise TrainingError(f"{few}: add some, at least {LEAST_RECORDINGS} are needed, of which two are to judge with")
    count = min(_MOST_HELD, max(_LEAST_HELD, round(_HELD_SHARE * len(recordings))))
    step = len(recordings) / count
    return tuple(recordings[int((number + 0.5) * step)].name for number in range(count))


def describe(options: argparse.Namespace) -> dict[str, Any]:
    """The options that a run is known by."""
    names = ("minutes", "rate", "warm_up", "rehearse", "pull", "weight_decay", "several_speakers", "seed")
    told = {name.replace("_", "-"): getattr(options, name) for name in names}
    jobs = options.jobs or RunState.stored_jobs(options.out) or count_cores()
    paths = {name: str(getattr(options, name).resolve()) for name in ("recordings", "bundle")}
    return {**told, **paths, "jobs": jobs}


if __name__ == "__main__":
    sys.exit(main())
