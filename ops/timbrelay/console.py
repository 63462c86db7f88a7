"""What a person sees: results on standard output; progress on standard error, as a bar on a terminal, else in lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Bar:
    """One thing in progress; the same calls work with and without a terminal."""

    def __init__(self, progress: Progress | None, task: TaskID | None) -> None:
        self._progress = progress
        self._task = task

    def step(self, description: str) -> None:
        """Says what is being done now."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=description)
        else:
            complain(f"{description} ...")

    def hide(self, line: str) -> None:
        """Prints a line and leaves the terminal alone from now on, for somebody to type there."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
        complain(line)

    def advance_to(self, done: float, total: float | None = None) -> None:
        """Moves the bar; shown on a terminal only."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done, total=total)

    def say(self, line: str) -> None:
        """Prints a result, on a terminal above the bar."""
        if self._progress is not None and sys.stdout.isatty():
            self._progress.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            say(line)


@contextmanager
def show_progress(description: str) -> Iterator[Bar]:
    """A bar that goes away when its matter is done: it pulses until it is given a total."""
    if not sys.stderr.isatty():
        complain(f"{description} ...")
        yield Bar(None, None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    # Results that go into a pipe must not be led to the terminal.
    redirect = sys.stdout.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=redirect) as progress:
        yield Bar(progress, progress.add_task(description, total=None))


def say(line: str) -> None:
    """Prints a result at once, also into a pipe."""
    print(line, flush=True)


def complain(line: str) -> None:
    """Prints a line to standard error."""
    print(line, file=sys.stderr, flush=True)


def is_interactive() -> bool:
    """Whether somebody is there who can answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()
