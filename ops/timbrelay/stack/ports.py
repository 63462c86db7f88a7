"""Ports on loopback: asked for, the default, or any that is free."""

from __future__ import annotations

import contextlib
import socket

from timbrelay.errors import PortInUse

LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 8080


def choose_port(asked: int | None) -> int:
    """The port for clients: the one asked for (0 means any), else 8080, else any that is free.

    Raises PortInUse when one was asked for by number and another program has it.
    """
    if asked:
        if not is_free(asked):
            raise PortInUse(asked)
        return asked
    if asked is None and is_free(DEFAULT_PORT):
        return DEFAULT_PORT
    return free_ports(1)[0]


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of the loopback address."""
    with _listener() as listener:
        try:
            listener.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_ports(count: int) -> list[int]:
    """That many different free ports; all are held until the last is found, so that none comes twice."""
    with contextlib.ExitStack() as held:
        listeners = [held.enter_context(_listener()) for _ in range(count)]
        for listener in listeners:
            listener.bind((LOOPBACK, 0))
        return [int(listener.getsockname()[1]) for listener in listeners]


def _listener() -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # A port in TIME_WAIT is free to a server, which sets this option too.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return listener
