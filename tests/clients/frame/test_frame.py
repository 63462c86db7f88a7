"""The frame itself: a client reaches the stack, in plain and over TLS, and nothing else."""

from __future__ import annotations

import json
import socket
import ssl

import aiohttp
import conftest
import httpx
import pytest
import websockets.sync.client
from _frame import Stack


def test_both_addresses_answer(trusted: Stack) -> None:
    """The plain relay and the one with TLS know the tenant's key, and its two voices."""
    for address in (trusted.http, trusted.https):
        answer = httpx.get(f"{address}/v1/voices", headers={"Authorization": f"Bearer {trusted.key}"}, timeout=10)
        assert {voice["id"] for voice in answer.json()["voices"]} >= set(trusted.voices.values())


def test_the_authority_is_nobodys_without_being_told(stack: Stack) -> None:
    """Without the test's authority a client refuses the certificate."""
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(f"{stack.https}/v1/voices", timeout=10)


def test_a_websocket_over_tls_is_greeted(trusted: Stack) -> None:
    """The native stream, through a default TLS context that trusts the authority."""
    headers = {"Authorization": f"Bearer {trusted.key}"}
    context = ssl.create_default_context()
    with websockets.sync.client.connect(
        f"{trusted.wss}/v1/stream", additional_headers=headers, ssl=context, proxy=None
    ) as connection:
        assert json.loads(connection.recv(timeout=10))["type"] == "hello"


async def test_whoever_goes_elsewhere_is_refused_and_remembered() -> None:
    """By name or address, with or without asyncio: no test can talk to a vendor unseen."""
    with pytest.raises(ConnectionRefusedError, match="not the stack's address"):
        socket.create_connection(("192.0.2.1", 443), timeout=1)
    with pytest.raises(OSError, match=r"api\.example\.com"):
        socket.create_connection(("api.example.com", 443), timeout=1)
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get("http://192.0.2.2/")
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get("http://api.example.org/")
    assert conftest.strayed == ["192.0.2.1", "api.example.com", "192.0.2.2", "api.example.org"]
    conftest.strayed.clear()
