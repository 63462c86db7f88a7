"""One process of the stack: how it is started, asked to stop, and killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from timbrelay.errors import ServerError
from timbrelay.stack import shim

_PROBE_TIMEOUT_S = 10.0
_GROUP_DEADLINE_S = 2.0


class Identity(StrEnum):
    """As whom a program runs; see `shim`."""

    SAME = "same"
    NAMESPACE = "namespace"
    NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class Command:
    """What to run. `environment` is complete: nothing is added to it."""

    name: str
    arguments: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]
    identity: Identity = Identity.SAME
    stop_signal: signal.Signals = signal.SIGTERM
    death_signal: signal.Signals = signal.SIGKILL
    """What the kernel sends when the supervisor dies."""


class Process:
    """A started command; its output is appended to the log."""

    def __init__(self, command: Command, log: Path) -> None:
        self.command = command
        self.log = log
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        return self.command.name

    @property
    def pid(self) -> int:
        """0 before the start."""
        return self._child.pid if self._child else 0

    @property
    def exit_code(self) -> int | None:
        """None while it runs, and before the start."""
        return self._child.poll() if self._child else None

    def start(self) -> None:
        """Starts it, in a session of its own: a Ctrl-C at the terminal reaches the supervisor only."""
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("The death signal follows the thread that starts a process: start it in the main one.")
        with self.log.open("ab") as output:
            self._child = subprocess.Popen(
                wrap(self.command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.command.folder,
                env=dict(self.command.environment),
                start_new_session=True,
            )

    def ask_to_stop(self) -> None:
        """Sends the stop signal; nothing happens when it has ended."""
        if self._child and self._child.poll() is None:
            self._child.send_signal(self.command.stop_signal)

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended within that time."""
        if self._child is None:
            return True
        try:
            self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """Ends it and whatever it has started, at once."""
        if self._child and self._child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGKILL)
                self._child.wait()
                self._wait_for_group(time.monotonic() + _GROUP_DEADLINE_S)

    def _wait_for_group(self, end: float) -> None:
        """What a killed process had started is not ours to wait for, only to watch: until the group is no more."""
        while self._child and time.monotonic() < end:
            os.killpg(self._child.pid, 0)
            time.sleep(0.01)


def wrap(command: Command) -> list[str]:
    """The argument list that starts the command through the shim."""
    return [
        *(sys.executable, "-I", "-S", shim.__file__),
        *(str(os.getpid()), str(int(command.death_signal)), command.identity.value),
        *command.arguments,
    ]


def run_to_end(command: Command, log: Path, timeout_s: float) -> int | None:
    """Runs it and returns its exit code, None when it had to be killed at the deadline."""
    process = Process(command, log)
    try:
        process.start()
        return process.exit_code if process.wait(timeout_s) else None
    finally:
        process.kill()


def choose_identity(program: Path) -> Identity:
    """As whom a program that refuses root can run. Raises ServerError when there is no way."""
    if os.geteuid() != 0:
        return Identity.SAME
    for identity in (Identity.NAMESPACE, Identity.NOBODY):
        if _runs_as(identity, program):
            return identity
    raise ServerError(
        f"{program} must not run as root, this machine refuses user namespaces, and the user nobody cannot read the "
        "program. Run Timbrelay as an ordinary user, or set DATABASE_URL."
    )


def _runs_as(identity: Identity, program: Path) -> bool:
    command = Command("probe", (str(program), "--version"), Path("/"), {}, identity)
    result = subprocess.run(wrap(command), capture_output=True, timeout=_PROBE_TIMEOUT_S, check=False)
    return result.returncode == 0
