"""What the command line reports instead of a traceback: each error is one sentence with the fix, and an exit code."""

from __future__ import annotations

from pathlib import Path

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class OpsError(Exception):
    """The base of everything that a command reports to its user."""

    exit_code = EXIT_FAILED


class UsageFault(OpsError):
    """Raised when a command was asked for something that it cannot mean."""

    exit_code = EXIT_USAGE


class FolderError(OpsError):
    """Raised when the data folder cannot be used."""

    def __init__(self, folder: Path, reason: str, fix: str) -> None:
        super().__init__(f"The data folder {folder} {reason}. {fix}")
        self.folder = folder


class ServerError(OpsError):
    """Raised when Postgres or Valkey cannot be found, started or reached."""


class PortInUse(OpsError):
    """Raised when a port that was asked for belongs to another program."""

    def __init__(self, port: int) -> None:
        super().__init__(f"Port {port} is in use; choose another with --port.")
        self.port = port


class ServiceDied(OpsError):
    """Raised when a process of the stack ended and will not be started again.

    `reason` is what it said itself; without it, the end of the log has to do.
    """

    def __init__(self, name: str, fate: str, log: Path, reason: str | None, tail: str) -> None:
        because = f": {reason} (see {log})" if reason else f". The last lines of {log}:\n{tail}"
        super().__init__(f"The {name} {fate}{because}")
        self.name = name
        self.log = log
        self.reason = reason
