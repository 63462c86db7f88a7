"""The processes of a stage: started together, watched, and ended with the run."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from worker.errors import TrainingError

_LOOK_EVERY_S = 0.1
_MEASURE_EVERY_S = 1.0
_GRACE_S = 10.0
_TAIL_BYTES = 8000
_CLASS = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Found|Interrupt)?: ")


@dataclass(frozen=True, slots=True)
class Job:
    """A module to run with its arguments; `measure` tells how far it is (0 to 1) and what to show beside it."""

    name: str
    module: str
    arguments: tuple[str, ...]
    threads: int = 1
    measure: Callable[[], tuple[float, str]] = lambda: (0.0, "")


Watch = Callable[[Job, float, str], None]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the jobs of a stage run: the stage's name, its log, the lock of the run, and what hears of progress."""

    stage: str
    log: Path
    lock: int
    watch: Watch


def run_jobs(jobs: Sequence[Job], place: Place, deadline_s: float | None) -> bool:
    """Run jobs at the same time to their ends; False when they were ended at the deadline.

    Raises TrainingError naming the stage and the reason when one fails; the others are ended then, too.
    """
    with ExitStack() as stack:
        log = stack.enter_context(place.log.open("ab"))
        running = [(job, stack.enter_context(_start(job, place, log))) for job in jobs]
        stack.callback(_end, [process for _, process in running])
        end = time.monotonic() + deadline_s if deadline_s is not None else float("inf")
        measured = 0.0
        while any(process.poll() is None for _, process in running):
            if any(process.poll() for _, process in running) or time.monotonic() > end:
                break
            if time.monotonic() - measured > _MEASURE_EVERY_S:
                measured = time.monotonic()
                for job, _ in running:
                    place.watch(job, *_measure(job, place))
            time.sleep(_LOOK_EVERY_S)
        _check(running, place)
        return all(process.poll() == 0 for _, process in running)


def _start(job: Job, place: Place, log: IO[bytes]) -> subprocess.Popen[bytes]:
    threads = str(job.threads)
    limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), threads)
    command = [sys.executable, "-m", "worker.training.pipeline.child", str(os.getpid()), job.module, *job.arguments]
    # The lock is inherited: while a process of a killed run still writes, the next run waits.
    return subprocess.Popen(
        command,
        env={**os.environ, **limits},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        pass_fds=(place.lock,),
        process_group=0,
    )


def _measure(job: Job, place: Place) -> tuple[float, str]:
    try:
        return job.measure()
    except TrainingError as problem:
        raise TrainingError(f"The stage `{place.stage}` was stopped in `{job.name}`: {problem}") from problem


def _check(running: Sequence[tuple[Job, subprocess.Popen[bytes]]], place: Place) -> None:
    for job, process in running:
        if process.poll():
            reason = explain(process.returncode, read_tail(place.log))
            raise TrainingError(
                f"The stage `{place.stage}` stopped in `{job.name}`: {reason}. What is done is kept: run the same "
                f"command again to go on; the log is {place.log}."
            )


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        if process.poll() is None:
            process.terminate()
    end = time.monotonic() + _GRACE_S
    for process in processes:
        try:
            process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def read_tail(log: Path) -> str:
    """The end of a log."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        return file.read().decode(errors="replace")


def explain(code: int, tail: str) -> str:
    """Why a process ended, in the words of its last line, or by the signal that ended it."""
    if code < 0:
        name = signal.Signals(-code).name
        hint = "; the machine may have run out of memory" if -code == signal.SIGKILL else ""
        return f"it was ended by {name}{hint}"
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    if not lines:
        return f"it ended with exit code {code} and said nothing"
    return _CLASS.sub("", lines[-1]).rstrip(".")
