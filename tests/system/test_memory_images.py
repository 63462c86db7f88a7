"""What is in the clear in memory stays there when a process dies."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from storage.memory_images import forbid_memory_images
from tests.conftest import StartStack

_ASK = "print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), resource.getrlimit(resource.RLIMIT_CORE))"


def _limit(pid: int) -> list[str]:
    limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
    return next(line for line in limits if line.startswith("Max core file size")).split()[4:6]


def _children(pid: int) -> list[int]:
    found = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [*found, *(further for child in found for further in _children(child))]


def test_no_process_of_ours_leaves_a_core(start_stack: StartStack) -> None:
    """Neither relay nor worker, nor Celery with all that it forks."""
    stack = start_stack()
    pids = stack.supervisor.pids()
    for pid in [*pids.values(), *_children(pids["celery"])]:
        assert _limit(pid) == ["0", "0"], Path(f"/proc/{pid}/cmdline").read_text()


def test_a_core_is_not_piped_to_a_program_either() -> None:
    """A process that forbids images of its memory is not dumpable (3 is PR_GET_DUMPABLE)."""
    code = f"import ctypes, resource; from {forbid_memory_images.__module__} import forbid_memory_images as forbid"
    for first, expected in ((_ASK, "1"), (f"forbid(); {_ASK}", "0 (0, 0)")):
        asked = subprocess.run([sys.executable, "-c", f"{code}; {first}"], capture_output=True, text=True, check=True)
        assert asked.stdout.startswith(expected)
