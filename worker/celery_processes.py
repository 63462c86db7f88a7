"""The processes that Celery forks (its pool and its beat): they end with their parent, and at once when asked to.

Importing onnxruntime survives a fork, a session of it does not: models are loaded by the child that needs them.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys

from celery import signals

_PR_SET_PDEATHSIG = 1


def supervise() -> None:
    """Connects to Celery's signals; to be called by the parent, once, before it forks."""
    parent = os.getpid()

    def bind(**_: object) -> None:
        bind_to_parent(parent)

    # The children would otherwise sit on their pipes when the parent is killed, and work beside the next one's.
    signals.worker_process_init.connect(bind, weak=False)
    signals.beat_embedded_init.connect(bind, weak=False)
    signals.worker_process_shutdown.connect(_leave, weak=False)


def share_memory() -> None:
    """Keeps the garbage collector off what is there now (`gc.freeze`); to be called last before the fork.

    Its marks are on the objects themselves, so that each child would soon have a copy of all modules: 221 MB for the
    parent, two tasks and beat together instead of 147.
    """
    gc.collect()
    gc.freeze()


def bind_to_parent(parent: int) -> None:
    """Has the kernel kill this process when its parent dies (`prctl(2)`; Linux only)."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _leave(exitcode: int = 0, **_: object) -> None:
    """A child that is done with its last task would sleep for a second, for the sake of a note that nobody waits for.

    A stack has three seconds to stop.
    """
    if exitcode == 0:
        os._exit(exitcode)
