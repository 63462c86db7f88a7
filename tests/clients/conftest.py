"""What the clients' tests are given: where the stack is, and a world in which nothing but the loopback answers."""

from __future__ import annotations

import ipaddress
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _frame import Stack

STACK = "TIMBRELAY_TEST_STACK"
_NAMES = {"", "localhost", "0.0.0.0", "::"}  # noqa: S104
strayed: list[str] = []


def pytest_configure(config: pytest.Config) -> None:
    """From here on, a client that ignores its base URL fails."""
    _forbid("connect", socket.socket.connect)
    _forbid("connect_ex", socket.socket.connect_ex)
    look_up = socket.getaddrinfo

    def look_up_ours(host: Any, *arguments: Any, **more: Any) -> Any:
        _check(host)
        return look_up(host, *arguments, **more)

    socket.getaddrinfo = look_up_ours


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The environment is complete: a test that was skipped has tested nothing, and nobody would see it."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if session.exitstatus == pytest.ExitCode.OK and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _forbid(name: str, connect: Any) -> None:
    def connect_ours(self: socket.socket, address: Any) -> Any:
        # A connected datagram socket has sent nothing yet: that is how programs find out their own address.
        if self.family in (socket.AF_INET, socket.AF_INET6) and self.type & socket.SOCK_STREAM:
            _check(address[0])
        return connect(self, address)

    setattr(socket.socket, name, connect_ours)


def _check(host: str | bytes | None) -> None:
    """Raises ConnectionRefusedError for whatever is not this machine, and remembers it."""
    name = host.decode() if isinstance(host, bytes) else host or ""
    if name in _NAMES:
        return
    try:
        if ipaddress.ip_address(name.partition("%")[0]).is_loopback:
            return
    except ValueError:
        pass
    strayed.append(name)
    raise ConnectionRefusedError(f"the client wanted {name}, which is not the stack's address")


@pytest.fixture(autouse=True)
def _stays_here() -> Iterator[None]:
    """A client may have swallowed the refusal and tried something else."""
    strayed.clear()
    yield
    assert not strayed, f"the client went elsewhere: {strayed}"


@pytest.fixture(scope="session")
def stack() -> Stack:
    """The coordinates of the running stack."""
    if STACK not in os.environ:
        pytest.exit("no stack is running: these tests are started by tests/dialects/test_clients.py", 1)
    return Stack(**json.loads(Path(os.environ[STACK]).read_text()))
