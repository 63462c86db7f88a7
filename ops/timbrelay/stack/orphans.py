"""Servers that outlived a killed supervisor for a moment: they must be gone before others use their files."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

_PROCESSES = Path("/proc")
_SERVERS = ("postgres", "valkey", "redis")


def end_orphans(folder: Path, deadline_s: float = 5.0) -> bool:
    """Waits until no process works in the folder; kills what is left at the deadline.

    Only for the holder of the data folder's lock. Says whether the folder is known to be free: without a `/proc` there
    is nothing to look at.
    """
    end = time.monotonic() + deadline_s
    while found := find_orphans(folder):
        if time.monotonic() > end:
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            break
        time.sleep(0.02)
    return _PROCESSES.is_dir()


def find_orphans(folder: Path) -> list[int]:
    """The servers whose working folder this is; a shell that somebody has open there is none."""
    wanted = os.path.realpath(folder)
    return [pid for pid in _pids() if _link(pid, "cwd") == wanted and _is_server(_link(pid, "exe"))]


def _pids() -> list[int]:
    if not _PROCESSES.is_dir():
        return []
    return [int(entry.name) for entry in _PROCESSES.iterdir() if entry.name.isdigit()]


def _is_server(program: str) -> bool:
    # The kernel marks a program that was replaced on the disk meanwhile.
    return Path(program.removesuffix(" (deleted)")).name.startswith(_SERVERS)


def _link(pid: int, name: str) -> str:
    try:
        return str((_PROCESSES / str(pid) / name).readlink())
    except OSError:
        return ""
