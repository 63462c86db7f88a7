"""The frame itself: a client reaches the stack, in plain and over TLS, and nothing else."""

from __future__ import annotations

import json
import socket
import ssl

import aiohttp
import certifi
import conftest
import httpx
import pytest
import requests
import websockets.sync.client
from _frame import Stack


async def test_both_addresses_answer(stack: Stack) -> None:
    """The plain relay and the one with TLS know the tenant's key and its two voices, whatever HTTP client asks."""
    headers = {"Authorization": f"Bearer {stack.key}"}
    for address in (stack.http, stack.https):
        asked = [call(f"{address}/v1/voices", headers=headers, timeout=10).json() for call in (httpx.get, requests.get)]
        async with aiohttp.ClientSession(headers=headers) as session, session.get(f"{address}/v1/voices") as answer:
            asked.append(await answer.json())
        for found in asked:
            assert {voice["id"] for voice in found["voices"]} >= set(stack.voices.values())


def test_the_authority_is_nobody_elses(stack: Stack) -> None:
    """A client that trusts the world's authorities refuses the certificate."""
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(f"{stack.https}/v1/voices", verify=ssl.create_default_context(cafile=certifi.where()), timeout=10)


def test_a_websocket_over_tls_is_greeted(stack: Stack) -> None:
    """The native stream, through the client's own idea of TLS."""
    headers = {"Authorization": f"Bearer {stack.key}"}
    with websockets.sync.client.connect(f"{stack.wss}/v1/stream", additional_headers=headers) as connection:
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
