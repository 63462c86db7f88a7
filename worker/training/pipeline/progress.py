"""What a person sees of a run: bars on a terminal, else a line now and then."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

from worker.training.pipeline.jobs import Job

_LINE_EVERY_S = 30.0


class Display:
    """The bars of a run: one for its stages, one for each process of the stage at work."""

    def __init__(self, stages: int, progress: Progress | None) -> None:
        self._progress, self._stages, self._number = progress, stages, 0
        self._tasks: dict[str, TaskID] = {}
        self._whole = progress.add_task("", total=stages) if progress else None
        self._stage, self._spoken = "", 0.0

    def begin(self, stage: str, done: int) -> None:
        """A stage begins; so many are behind."""
        self._stage, self._number = stage, done + 1
        if self._progress is None or self._whole is None:
            say(f"[{self._number}/{self._stages}] {stage}")
            return
        self.clear()
        self._progress.update(self._whole, description=f"stage {self._number} of {self._stages}", completed=done)

    def clear(self) -> None:
        """The processes of a stage have ended."""
        if self._progress is not None:
            for task in self._tasks.values():
                self._progress.remove_task(task)
        self._tasks.clear()

    def show(self, job: Job, share: float, note: str) -> None:
        """How far one process is."""
        if self._progress is None:
            if time.monotonic() - self._spoken > _LINE_EVERY_S:
                self._spoken = time.monotonic()
                say(f"    {job.name}: {100 * share:.0f} %  {note}")
            return
        if job.name not in self._tasks:
            self._tasks[job.name] = self._progress.add_task("", total=1.0)
        self._progress.update(self._tasks[job.name], description=f"  {job.name}  {note}", completed=share)

    def say(self, line: str) -> None:
        """A line that stays."""
        if self._progress is not None:
            self._progress.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            say(line)


@contextmanager
def show_progress(stages: int) -> Iterator[Display]:
    """A display on standard error for a run of so many stages."""
    if not sys.stderr.isatty():
        yield Display(stages, None)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=4) as progress:
        yield Display(stages, progress)


def say(line: str) -> None:
    """Print a line on standard error at once."""
    print(line, file=sys.stderr, flush=True)
