"""Where and of what a benchmark was made: processor, memory, date, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

_CPU_INFO = Path("/proc/cpuinfo")
_MEMORY_INFO = Path("/proc/meminfo")
_GIT_TIMEOUT_S = 5.0


def describe_machine() -> str:
    """The processor's name, how many of it this process may use, and the memory."""
    name = _find_line(_CPU_INFO, "model name") or platform.processor() or platform.machine()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    words = [name, f"{cores} cores", f"{platform.system()}"]
    if memory := _find_line(_MEMORY_INFO, "MemTotal"):
        words.insert(2, f"{int(memory.split()[0]) / 2**20:.0f} GiB")
    return ", ".join(words)


def find_commit(root: Path) -> str:
    """The checkout's commit, with `+` when files differ from it; `unknown` outside of one."""
    commit = _git(root, "rev-parse", "--short", "HEAD")
    if commit is None:
        return "unknown"
    return commit + ("+" if _git(root, "status", "--porcelain", "--untracked-files=no") else "")


def today() -> str:
    """The date, in UTC."""
    return datetime.now(UTC).date().isoformat()


def _find_line(path: Path, name: str) -> str:
    if not path.exists():
        return ""
    lines = (line.split(":", 1)[1].strip() for line in path.read_text().splitlines() if line.startswith(name))
    return next(lines, "")


def _git(root: Path, *arguments: str) -> str | None:
    try:
        command = ["git", "-C", str(root), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
