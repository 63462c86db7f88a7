"""Which ports a stack listens on."""

from __future__ import annotations

import socket

import pytest

from timbrelay.errors import PortInUse
from timbrelay.stack.ports import DEFAULT_PORT, choose_port, free_ports, is_free
from timbrelay.stack.services import Ports


def test_a_port_in_use_is_refused_when_it_was_asked_for() -> None:
    """A port that another program has is refused with the way out."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert not is_free(port)
        with pytest.raises(PortInUse, match=rf"Port {port} is in use; choose another with --port\."):
            choose_port(port)


def test_the_default_gives_way() -> None:
    """Without a wish the default port is taken, or any free one when it is in use."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            holder.bind(("127.0.0.1", DEFAULT_PORT))
            holder.listen()
        except OSError:
            pass  # Another program has it, which is as good.
        assert choose_port(None) not in (DEFAULT_PORT, 0)


def test_a_port_that_was_asked_for_is_taken() -> None:
    """A free port that was asked for is used; 0 asks for any."""
    port = free_ports(1)[0]
    assert choose_port(port) == port
    assert choose_port(0) > 0


def test_no_port_is_given_twice() -> None:
    """The processes of one stack listen on different ports."""
    ports = Ports.choose(0, workers=5)
    numbers = [ports.relay, ports.relay_metrics, *ports.worker_metrics]
    assert len(set(numbers)) == len(numbers) == 7
    assert set(ports.metrics_urls) == {"relay", "worker", "worker-2", "worker-3", "worker-4", "worker-5"}
