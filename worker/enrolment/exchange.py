"""One question to a child process and its answer: bytes in, bytes out, both in memory, within a bound and a time."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

_PIECE = 64 * 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """What a child wrote, and its exit status (negative: the signal that ended it).

    `late` says that the time was over, `overflowed` that it wrote more than was allowed; it was killed then.
    """

    output: bytes = field(repr=False)
    status: int
    late: bool = False
    overflowed: bool = False


def ask(
    command: Sequence[str], data: bytes, *, environment: Mapping[str, str], most_bytes: int, timeout_s: float
) -> Answer:
    """Starts a command in a session of its own, writes `data` to it and reads up to `most_bytes`.

    Its errors are thrown away: a decoder's own words may quote the file. No child outlives the call.

    Raises:
        OSError: the command cannot be started.
    """
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=dict(environment),
        cwd="/",
        start_new_session=True,
    )
    try:
        output, late = _converse(child, data, most_bytes, time.monotonic() + timeout_s)
    finally:
        _end(child)
    return Answer(output[:most_bytes], child.returncode, late, len(output) > most_bytes)


def _converse(child: subprocess.Popen[bytes], data: bytes, most_bytes: int, deadline: float) -> tuple[bytes, bool]:
    """What was read, one piece over `most_bytes` at the most, and whether the time was over."""
    assert child.stdin is not None and child.stdout is not None  # noqa: S101 - pipes were asked for
    left, output = memoryview(data), bytearray()
    os.set_blocking(child.stdin.fileno(), False)
    with selectors.DefaultSelector() as ready:
        ready.register(child.stdout, selectors.EVENT_READ)
        ready.register(child.stdin, selectors.EVENT_WRITE)
        while len(output) <= most_bytes:
            events = ready.select(max(deadline - time.monotonic(), 0))
            if not events:
                return bytes(output), True
            for key, _ in events:
                if key.fileobj is child.stdin:
                    left = _write(child.stdin, left)
                    if not left:
                        ready.unregister(child.stdin)
                        child.stdin.close()
                    continue
                piece = os.read(child.stdout.fileno(), _PIECE)
                if not piece:
                    return bytes(output), not _leaves(child, deadline)
                output += piece
    return bytes(output), False


def _write(pipe: IO[bytes], left: memoryview) -> memoryview:
    """What is still to be written; nothing when the child reads no more."""
    try:
        return left[os.write(pipe.fileno(), left[:_PIECE]) :]
    except BlockingIOError:
        return left
    except BrokenPipeError:
        return left[:0]


def _leaves(child: subprocess.Popen[bytes], deadline: float) -> bool:
    """Waits until the child that has closed its output is gone."""
    try:
        child.wait(max(deadline - time.monotonic(), 0))
    except subprocess.TimeoutExpired:
        return False
    return True


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kills the child's whole session, unless it came to its own end, and closes the pipes."""
    if child.returncode is None:
        # Not waited for yet, its number is still its own, and its session's: this cannot meet anybody else.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()
