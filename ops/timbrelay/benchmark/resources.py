"""What processes take of the machine, from Linux' /proc; elsewhere nothing is known.

A process is counted with everything it has started, Postgres for example with its backends. Resident memory that
several of them share is then counted several times.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_KIB = 1024


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor time since the start, and memory now."""

    cpu_s: float
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class Share:
    """What a process took over a run."""

    cpu: float
    """Cores, on average: 1.0 is all of one."""

    rss_mb: float
    """Resident memory at the end, in MiB."""

    rss_begin_mb: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All processes at one moment."""

    at: float
    usages: Mapping[str, Usage]
    busy_s: float
    """What all cores of the machine together have worked since it started, for whomever."""


@dataclass(frozen=True, slots=True)
class _Entry:
    parent: int
    usage: Usage


def is_known() -> bool:
    """Whether this machine tells."""
    return (PROC / "self" / "stat").exists() and (PROC / "stat").exists()


def take_snapshot(pids: Mapping[str, int], generator: int) -> Snapshot:
    """Of the processes by name, and of the one that makes the load (without its children)."""
    if not is_known():
        return Snapshot(time.monotonic(), {}, 0.0)
    table = _read_table()
    usages = {name: _sum_tree(table, pid) for name, pid in pids.items() if pid in table}
    if generator in table:
        usages["load generator"] = table[generator].usage
    return Snapshot(time.monotonic(), usages, parse_busy((PROC / "stat").read_text()))


def compare(begin: Snapshot, end: Snapshot) -> dict[str, Share]:
    """What each process took between two moments; those that were there at both."""
    elapsed = max(end.at - begin.at, 1e-9)
    return {
        name: Share(
            round((usage.cpu_s - begin.usages[name].cpu_s) / elapsed, 3),
            round(usage.rss_bytes / _KIB**2, 1),
            round(begin.usages[name].rss_bytes / _KIB**2, 1),
        )
        for name, usage in end.usages.items()
        if name in begin.usages
    }


def machine_share(begin: Snapshot, end: Snapshot) -> float:
    """How many cores of the machine were busy, on average, whoever they worked for."""
    return round((end.busy_s - begin.busy_s) / max(end.at - begin.at, 1e-9), 3)


def parse_stat(stat: str) -> _Entry:
    """One line of /proc/PID/stat (proc(5)); the name in it may hold anything, also brackets and spaces."""
    fields = stat.rpartition(")")[2].split()
    ticks = sum(int(fields[index]) for index in (11, 12, 13, 14))
    usage = Usage(ticks / os.sysconf("SC_CLK_TCK"), int(fields[21]) * os.sysconf("SC_PAGE_SIZE"))
    return _Entry(int(fields[1]), usage)


def parse_busy(stat: str) -> float:
    """Seconds of work from the first line of /proc/stat: everything but idling and waiting for a disk."""
    ticks = [int(field) for field in stat.split("\n", 1)[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def _read_table() -> dict[int, _Entry]:
    table = {}
    for folder in PROC.iterdir():
        if folder.name.isdecimal():
            try:
                table[int(folder.name)] = parse_stat((folder / "stat").read_text())
            except OSError:
                continue
    return table


def _sum_tree(table: Mapping[int, _Entry], root: int) -> Usage:
    tree, cpu_s, rss = [root], 0.0, 0
    for pid in tree:
        cpu_s += table[pid].usage.cpu_s
        rss += table[pid].usage.rss_bytes
        tree += [child for child, entry in table.items() if entry.parent == pid and child not in tree]
    return Usage(cpu_s, rss)
