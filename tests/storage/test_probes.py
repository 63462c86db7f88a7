"""storage.probes."""

from __future__ import annotations

import asyncio
import socket

import httpx2
import pytest

from storage.errors import PortInUse, ServerUnavailable
from storage.probes import listen, probe_app, serving


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_what_is_accepted_sends_at_once() -> None:
    """TCP_NODELAY is on for accepted connections, so that no chunk waits for an acknowledgement."""
    with listen("127.0.0.1", 0, "PORT") as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def test_a_taken_port_names_its_setting() -> None:
    """The error says which variable chooses another."""
    with listen("127.0.0.1", 0, "PORT") as listener:
        port = listener.getsockname()[1]
        with pytest.raises(PortInUse, match="TIMBRELAY_X_PORT"):
            listen("127.0.0.1", port, "TIMBRELAY_X_PORT")


async def test_ready_is_what_every_check_says_and_alive_is_not() -> None:
    """A server that is away makes the process unready, with its reason, and leaves it alive."""
    away = True

    async def check() -> None:
        if away:
            raise ServerUnavailable("Redis", "no answer in time")

    port = _free_port()
    async with (
        serving(probe_app({"redis": check}), "127.0.0.1", port, "PORT"),
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        answer = await client.get("/readyz")
        assert (answer.status_code, answer.json()["ready"]) == (503, False)
        assert "no answer in time" in answer.json()["checks"]["redis"]
        assert (await client.get("/healthz")).status_code == 200
        away = False
        assert (await client.get("/readyz")).json() == {"ready": True, "checks": {"redis": "ok"}}
        assert "python_info" in (await client.get("/metrics")).text
    with pytest.raises(httpx2.TransportError):
        await asyncio.to_thread(httpx2.get, f"http://127.0.0.1:{port}/healthz")
