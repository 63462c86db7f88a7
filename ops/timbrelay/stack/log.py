"""The stack's one log file: every process appends to it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

MAX_BYTES = 20 * 1024 * 1024
_TAIL_BYTES = 16 * 1024


def rotate(log: Path, max_bytes: int = MAX_BYTES) -> bool:
    """Moves a log that has grown too long to `<name>.1`, in place, and says whether it did.

    The processes hold the file open for appending: it is copied and cut to nothing, never renamed.
    """
    if not log.exists() or log.stat().st_size <= max_bytes:
        return False
    shutil.copyfile(log, log.with_name(log.name + ".1"))
    os.truncate(log, 0)
    return True


def tail(log: Path, lines: int = 12, since: int = 0) -> str:
    """The last lines of the log, none of them from before the byte `since`."""
    return "\n".join(f"  {line}" for line in _read_end(log, since).splitlines()[-lines:])


def find_reason(log: Path, since: int = 0) -> str | None:
    """Why a process of ours gave up, in its own words: the `reason` of the last error after the byte `since`."""
    for line in reversed(_read_end(log, since).splitlines()):
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and entry.get("level") == "error" and "reason" in entry:
            return str(entry["reason"])
    return None


def size(log: Path) -> int:
    """The log's length in bytes; 0 when there is none yet."""
    return log.stat().st_size if log.exists() else 0


def _read_end(log: Path, since: int) -> str:
    try:
        with log.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(end - _TAIL_BYTES, min(since, end)))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
