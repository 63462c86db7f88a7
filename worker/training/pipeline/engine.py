"""The loop over the stages of a run: skip, take up, run, remember."""

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from worker.errors import TrainingError
from worker.training.pipeline.budget import patience, split_seconds
from worker.training.pipeline.jobs import Job, Place, run_jobs
from worker.training.pipeline.progress import Display, show_progress
from worker.training.pipeline.stages import Cost, Stage, Status
from worker.training.pipeline.state import RunState

LOCK = "run.lock"
_LOCK_WAIT_S = 15.0
_LOCK_LOOK_S = 0.25


@dataclass(frozen=True, slots=True)
class Wave:
    """Jobs that run together; `share` of the stage's time is theirs."""

    jobs: Sequence[Job]
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Step:
    """What a stage does: `plan` gives waves of jobs for the seconds it has, one after the other, each planned when its
    turn comes; `skip` gives the reason why there is nothing to do, or None. An `elastic` stage makes data: when its
    time is long over, it is ended with what it has."""

    plan: Callable[[float], Iterator[Wave]]
    skip: Callable[[], str | None] = lambda: None
    elastic: bool = False


@dataclass(frozen=True, slots=True)
class Course:
    """A whole run: what each stage costs and does, the hours of all together and the cores."""

    costs: Mapping[Stage, Cost]
    steps: Mapping[Stage, Step]
    hours: float
    jobs: int

    def allot(self, state: RunState, stage: Stage) -> float:
        """Seconds of a stage: its share of the time that no stage was given yet. What was allotted stays."""
        if stage not in state.budget:
            pending = {Stage(name): self.costs[Stage(name)] for name in state.pending()}
            left = self.hours * 3600 - sum(state.budget.values())
            state.budget[str(stage)] = round(split_seconds(left, pending, self.jobs)[stage], 1)
        return state.budget[stage]


@contextmanager
def open_folder(folder: Path) -> Iterator[int]:
    """The run's folder, made and locked; processes of the run inherit the lock.

    Raises TrainingError when it cannot be made, or when another run is at work there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as problem:
        raise TrainingError(
            f"{folder} cannot be written ({problem.strerror}): give another folder with --out"
        ) from problem
    try:
        _take(lock, folder)
        os.set_inheritable(lock, True)
        yield lock
    finally:
        os.close(lock)


def _take(lock: int, folder: Path) -> None:
    end = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise TrainingError(f"another run is at work in {folder}: wait for it or give another --out") from None
            time.sleep(_LOCK_LOOK_S)


def run_course(course: Course, state: RunState, lock: int, until: str | None = None) -> None:
    """Run what is left of a run, up to and with the stage `until`. Raises TrainingError when a stage cannot go on."""
    with show_progress(len(state.stages)) as display:
        for name in state.pending():
            display.begin(name, list(state.stages).index(name))
            _run_stage(Stage(name), course, state, lock, display)
            display.clear()
            if name == until:
                return


def _run_stage(stage: Stage, course: Course, state: RunState, lock: int, display: Display) -> None:
    record, step = state.stages[stage], course.steps[stage]
    if record.status is Status.WAITING and (reason := step.skip()):
        state.move(stage, Status.SKIPPED, reason)
        display.say(f"{stage}: skipped, {reason}")
        return
    check_room(stage, state.folder, course.costs[stage].room)
    seconds, before, began = course.allot(state, stage), record.seconds, time.monotonic()
    state.move(stage, Status.RUNNING)
    try:
        whole = _run_waves(stage, step, seconds, state.folder, lock, display)
    except TrainingError as problem:
        record.seconds = before + time.monotonic() - began
        state.move(stage, Status.FAILED, str(problem))
        raise
    finally:
        record.seconds = before + time.monotonic() - began
    state.move(stage, Status.DONE, "" if whole else "ended with what it had when its time was over")


def _run_waves(stage: Stage, step: Step, seconds: float, folder: Path, lock: int, display: Display) -> bool:
    logs = folder / "logs"
    logs.mkdir(exist_ok=True)
    place = Place(stage, logs / f"{stage}.log", lock, display.show)
    whole = True
    for wave in step.plan(seconds):
        deadline = patience(seconds * wave.share) if step.elastic else None
        whole = run_jobs(wave.jobs, place, deadline) and whole
    return whole


def check_room(name: str, folder: Path, megabytes: int) -> None:
    """Raises TrainingError when the disk is too full for a stage to begin."""
    free = shutil.disk_usage(folder).free // 10**6
    if free < megabytes:
        raise TrainingError(
            f"The stage `{name}` needs {megabytes} MB and {free} MB are free at {folder}: make room and run the same "
            "command again; what is done is kept."
        )
