"""Our own Valkey: streams that survive a restart, on a unix socket."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from timbrelay.errors import ServerError
from timbrelay.stack.log import tail
from timbrelay.stack.process import Command, Process

_START_TIMEOUT_S = 30.0
_SOCKET = "valkey.sock"


@dataclass(frozen=True, slots=True)
class Valkey:
    """One server: its program and its files."""

    program: Path
    folder: Path
    runtime: Path
    environment: Mapping[str, str]
    durable: bool = True
    """False only in tests: data survives the end of the process, not of the machine."""

    @property
    def socket(self) -> Path:
        return self.runtime / _SOCKET

    @property
    def url(self) -> str:
        return f"unix://{self.socket}?db=0"

    def prepare(self) -> None:
        self.folder.mkdir(mode=0o700, exist_ok=True)

    def command(self) -> Command:
        """How the server is run. Full memory refuses writes: a stream must never lose entries to eviction."""
        options = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(self.folder),
            "appendonly": "yes",
            "appendfsync": "everysec" if self.durable else "no",
            "save": "",
            "maxmemory": "256mb",
            "maxmemory-policy": "noeviction",
            "loglevel": "warning",
        }
        settings = (part for name, value in options.items() for part in (f"--{name}", value))
        return Command(
            *("valkey", (str(self.program), *settings), self.folder, self.environment),
            death_signal=signal.SIGTERM,
        )

    def wait_ready(self, process: Process) -> None:
        """Returns when it answers. Raises ServerError when it ends or is too slow."""
        end = time.monotonic() + _START_TIMEOUT_S
        while not self._answers():
            if process.exit_code is not None or time.monotonic() > end:
                raise ServerError(f"Valkey did not start:\n{tail(process.log)}")
            time.sleep(0.005)

    def _answers(self) -> bool:
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(1.0)
                connection.connect(str(self.socket))
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False
