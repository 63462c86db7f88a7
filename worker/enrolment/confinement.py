"""What the process that decodes strangers' files may do: compute, within memory and time, and nothing else.

The limits are POSIX (`setrlimit`), the flags Linux (`prctl(2)`). A process in confinement cannot lift them: the hard
limits go down with the soft ones.
"""

from __future__ import annotations

import ctypes
import resource
import sys

MEMORY_BYTES = 768 * 1024 * 1024
"""Address space: the interpreter and FFmpeg map 200 MiB, eight channels at 192 kHz are read with 300 more."""

CPU_S = 10
"""Seconds of processor time, at whose end SIGXCPU comes; a minute in eight channels at 192 kHz takes half of it."""

_OPEN_FILES = 64
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
_SIGKILL = 9


def confine() -> None:
    """Bounds memory and time, forbids files to grow and programs to be gained; to be called before reading anything.

    A process that is not dumpable leaves no core either where cores are piped to a program, which RLIMIT_CORE alone
    does not prevent (`core(5)`). It ends with the thread that started it.
    """
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_FSIZE, 0)
    _lower(resource.RLIMIT_AS, MEMORY_BYTES)
    _lower(resource.RLIMIT_CPU, CPU_S, CPU_S + 1)
    _lower(resource.RLIMIT_NOFILE, _OPEN_FILES)
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        for flag, value in ((_PR_SET_NO_NEW_PRIVS, 1), (_PR_SET_DUMPABLE, 0), (_PR_SET_PDEATHSIG, _SIGKILL)):
            if libc.prctl(flag, value, 0, 0, 0):
                raise OSError(ctypes.get_errno(), f"prctl({flag}) was refused; decode on Linux 3.5 or newer")


def seal() -> None:
    """Forbids to open anything more, file or socket, and to start a process or a thread; after all imports."""
    _lower(resource.RLIMIT_NOFILE, 0)
    _lower(resource.RLIMIT_NPROC, 0)


def _lower(limit: int, soft: int, hard: int | None = None) -> None:
    """Sets both bounds of a limit, neither above what it was; alike, unless the second is told."""
    bounds = zip(resource.getrlimit(limit), (soft, soft if hard is None else hard), strict=True)
    low, high = (new if old == resource.RLIM_INFINITY else min(old, new) for old, new in bounds)
    resource.setrlimit(limit, (min(low, high), high))
