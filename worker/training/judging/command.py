"""Judging a bundle on people it never heard.

    python -m worker.training.judging --bundle bundles/base --people DIR --recogniser WHISPER --out REPORT

`--people` holds recordings `SPEAKER-*.flac` and `transcripts.tsv`. Writes evaluation.json, evaluation.md and
listening.html into `--out`; what is judged already is kept there and not judged again, so a killed run goes on.
`--record` also stores the report beside the bundle and its figures in the bundle's manifest.
"""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from worker.errors import WorkerError
from worker.training.judging.evaluation import VOCODERS, Options, evaluate
from worker.training.judging.hearing import Task
from worker.training.judging.record import record, write_report
from worker.training.judging.report import LABELS, flat_figures, format_figure

SENTENCES = Path(__file__).parents[1] / "sentences.txt"
EXIT_FAILED, EXIT_INTERRUPTED = 1, 130
_LINE_EVERY = 25


def show_progress(tasks: Iterable[Task], total: int) -> Iterable[Task]:
    """Tasks as they are taken: with a bar on a terminal, else with a line now and then, both on standard error."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import track

        yield from track(tasks, "Speaking and judging", total, console=Console(stderr=True), transient=True)
        return
    for number, task in enumerate(tasks):
        if number % _LINE_EVERY == 0:
            print(f"{number} of {total} judged, now {task.system}", file=sys.stderr, flush=True)
        yield task


def parse(argv: list[str] | None) -> tuple[Options, bool]:
    """The options, and whether the report is to be stored with the bundle."""
    parser = argparse.ArgumentParser(
        prog="python -m worker.training.judging", description="Judge a bundle on people it never heard."
    )
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--people", type=Path, required=True, help="recordings SPEAKER-*.flac and transcripts.tsv")
    parser.add_argument("--out", type=Path, required=True, help="folder of the report, and of what is judged already")
    parser.add_argument("--recogniser", type=Path, help="folder of a CTranslate2 Whisper; else tiny.en, if installed")
    parser.add_argument("--sentences", type=Path, default=SENTENCES, help="one sentence a line")
    parser.add_argument("--teachers", action="store_true", help="judge the teachers on the same sentences")
    parser.add_argument("--styles", type=Path, help="folder of Kokoro's styles (voices/*.bin), for --teachers")
    parser.add_argument("--vocoder", action="append", default=[], choices=VOCODERS, help="only this one (repeatable)")
    parser.add_argument("--no-recordings", action="store_true", help="leave out real recordings and their copies")
    parser.add_argument("--record", action="store_true", help="store the report and its figures with the bundle")
    found = parser.parse_args(argv)
    options = Options(
        bundle=found.bundle,
        people=found.people,
        out=found.out,
        sentences=found.sentences,
        recogniser=found.recogniser,
        teachers=found.teachers,
        styles=found.styles,
        vocoders=tuple(found.vocoder),
        recordings=not found.no_recordings,
    )
    return options, bool(found.record)


def main(argv: list[str] | None = None) -> int:
    """The command line; its exit status."""
    options, recorded = parse(argv)
    try:
        outcome = evaluate(options, show_progress)
        paths = write_report(options.out, outcome)
        if recorded:
            record(options.bundle, options.out)
    except WorkerError as problem:
        print(problem, file=sys.stderr)
        return EXIT_FAILED
    except OSError as problem:
        where = problem.filename or options.out
        print(f"{where}: {problem.strerror}; make room and run the same command, which goes on", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        print("stopped; the same command goes on from here", file=sys.stderr)
        return EXIT_INTERRUPTED
    figures = flat_figures(outcome.evaluation)
    for name, label in LABELS.items():
        if name in figures:
            print(f"{label:58} {format_figure(name, figures[name])}")
    print("\n".join(str(path) for path in paths))
    return 0
