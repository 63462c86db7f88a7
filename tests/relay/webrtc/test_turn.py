"""Peers that can only meet at a TURN server: a real coturn, with credentials that the relay has made."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from aiortc import RTCBundlePolicy, RTCConfiguration, RTCIceServer, RTCIceTransportPolicy
from pydantic import SecretStr

from tests.conftest import MakeTenant, MakeVoice, StartStack, wait_until
from tests.relay.conftest import EMBEDDING
from tests.relay.webrtc.listening import connect_whep

OWN_RELAY = True
SECRET = "a secret of two"


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture
def turn_port(tmp_path: Path) -> Iterator[int]:
    """Where coturn listens on 127.0.0.1; skips where there is none."""
    server = shutil.which("turnserver")
    if server is None:
        pytest.skip("no coturn on the PATH (Debian: coturn)")
    port = free_port()
    command = [
        *(server, "-n", "--no-cli", "--no-tls", "--no-dtls", "--listening-ip", "127.0.0.1", "--relay-ip", "127.0.0.1"),
        *("--listening-port", str(port), "--use-auth-secret", f"--static-auth-secret={SECRET}", "--realm", "test"),
        *(
            "--allow-loopback-peers",
            "--pidfile",
            str(tmp_path / "pid"),
            "--log-file",
            "stdout",
            "--userdb",
            str(tmp_path / "db"),
        ),
    ]
    log = (tmp_path / "turn.log").open("w")
    with log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            wait_until(lambda: _answers(port))
            yield port
        finally:
            process.terminate()


def _answers(port: int) -> bool:
    """Whether a TCP connection is taken, which it is as soon as UDP is heard."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_speech_is_heard_through_turn_alone(
    turn_port: int, start_stack: StartStack, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """Both sides offer nothing but what coturn relays, each with a short-lived credential; speech arrives."""
    url = f"turn:127.0.0.1:{turn_port}?transport=udp"
    stack = start_stack(
        only=("relay", "worker"),
        turn_urls=url,
        turn_secret=SecretStr(SECRET),
        webrtc_candidates="relay",
    )
    tenant = await make_tenant("acme")
    voice = await make_voice(tenant.id, embedding=EMBEDDING)
    headers = {"Authorization": f"Bearer {tenant.key}"}
    async with httpx2.AsyncClient(base_url=stack.relay_url, headers=headers, timeout=30) as http:
        (server,) = (await http.post("/start", json={})).json()["iceConfig"]["iceServers"]
        async with connect_whep(http, configuration=_only_relayed(server)) as listener:
            assert "typ relay" in listener.connection.remoteDescription.sdp
            assert "typ host" not in listener.connection.remoteDescription.sdp
            await listener.until_connected()
            listener.open(voice)
            listener.say(type="text", context="c", text="Through the server.")
            listener.say(type="end", context="c")
            await listener.until("played")
            await asyncio.sleep(0.2)
            assert listener.loud().any()


async def test_a_server_that_does_not_answer_holds_nobody_up(start_stack: StartStack, make_tenant: MakeTenant) -> None:
    """Gathering ends after two seconds with what there is, the address that a NAT makes known among it."""
    stack = start_stack(
        only=("relay", "worker"),
        stun_urls=f"stun:127.0.0.1:{free_port()}",
        webrtc_candidates="all",
        webrtc_address="198.51.100.9",
        webrtc_loopback=True,
    )
    tenant = await make_tenant("acme")
    headers = {"Authorization": f"Bearer {tenant.key}"}
    async with httpx2.AsyncClient(base_url=stack.relay_url, headers=headers, timeout=30) as http:
        began = asyncio.get_running_loop().time()
        async with connect_whep(http) as listener:
            # aioice by itself would wait for five.
            assert asyncio.get_running_loop().time() - began < 4.5
            inner = listener.connection.remoteDescription.sdp
            assert "127.0.0.1" in inner and ("198.51.100.9" in inner) == (inner.count("typ host") > 1)
            await listener.until_connected()


def _only_relayed(server: dict[str, object]) -> RTCConfiguration:
    urls, username, credential = server["urls"], server["username"], server["credential"]
    assert isinstance(urls, list) and isinstance(username, str) and isinstance(credential, str)
    return RTCConfiguration(
        iceServers=[RTCIceServer(urls, username, credential)],
        iceTransportPolicy=RTCIceTransportPolicy.RELAY,
        bundlePolicy=RTCBundlePolicy.MAX_BUNDLE,
    )
