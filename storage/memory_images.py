"""Keys, recordings and texts are in the clear in the memory of our processes, and a core dump would be a copy of it."""

from __future__ import annotations

import ctypes
import resource
import sys

_PR_SET_DUMPABLE = 4


def forbid_memory_images() -> None:
    """From here on neither this process nor what it forks leaves a core; to be called before any secret is read.

    RLIMIT_CORE does not bind where cores are piped to a program (`core(5)`), so on Linux the process is not dumpable
    either, and other processes of the same user cannot read its memory (`prctl(2)`).
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
