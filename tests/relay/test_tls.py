"""The relay serves https and wss itself when it is given a certificate."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import subprocess
import sys
from asyncio import constants
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
import uvicorn
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from starlette.applications import Starlette
from websockets.asyncio.client import connect

from relay import certificate
from relay.protocols import BoundedWebSocket, PromptHttp
from storage.errors import SettingsError
from storage.probes import PartServer, listen
from storage.settings import Settings
from tests.certificates import Authority, Pair
from tests.conftest import DEADLINE_S, MakeTenant, RunningStack

CERTIFICATE, KEY = "TIMBRELAY_RELAY_TLS_CERTIFICATE", "TIMBRELAY_RELAY_TLS_KEY"
SERVERS = {"DATABASE_URL": "postgresql://user@host/name", "REDIS_URL": "redis://host:6379/0"}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "authority")


@pytest.fixture
def pair(authority: Authority) -> Pair:
    return authority.sign()


def _name(pair: Pair) -> dict[str, Path]:
    return {"relay_tls_certificate": pair.certificate, "relay_tls_key": pair.key}


def _trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority.file)


def _prepare(settings: Settings, pair: Pair) -> None:
    certificate.prepare_tls(settings.model_copy(update=_name(pair)))


async def test_requests_and_streams_come_over_tls(
    start_relay: Callable[..., RunningStack], make_tenant: MakeTenant, authority: Authority, pair: Pair, tmp_path: Path
) -> None:
    """Who trusts the authority is served, by name and address, requests and the stream; who does not, and who comes
    without TLS, is not."""
    tenant = await make_tenant("acme")
    headers = {"Authorization": f"Bearer {tenant.key}"}
    port = start_relay(**_name(pair)).services.ports.relay
    trusting = _trusting(authority)
    for host in ("localhost", "127.0.0.1"):
        async with httpx2.AsyncClient(verify=trusting, headers=headers, trust_env=False) as client:
            answer = await client.get(f"https://{host}:{port}/v1/voices")
            assert (answer.status_code, answer.json()["voices"]) == (200, [])
        async with connect(
            f"wss://{host}:{port}/v1/stream", ssl=trusting, additional_headers=headers, proxy=None
        ) as stream:
            assert json.loads(await stream.recv())["type"] == "hello"
            await asyncio.wait_for(await stream.ping(), DEADLINE_S)
            # A ticket after the handshake is what a client with two threads stumbles over.
            assert not stream.transport.get_extra_info("ssl_object").session.has_ticket
    stranger = _trusting(Authority(tmp_path, "stranger"))
    async with httpx2.AsyncClient(verify=stranger, headers=headers, trust_env=False) as client:
        with pytest.raises(httpx2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await client.get(f"https://localhost:{port}/v1/voices")
        with pytest.raises(httpx2.TransportError):
            await client.get(f"http://localhost:{port}/v1/voices")


@pytest.mark.parametrize("given", [{CERTIFICATE: "relay.pem"}, {KEY: "relay.key"}, {CERTIFICATE: "c", KEY: ""}])
def test_a_certificate_without_its_key_is_refused(monkeypatch: pytest.MonkeyPatch, given: dict[str, str]) -> None:
    """Both are set or neither; half of it must not become a relay that speaks without TLS."""
    for name, value in {**SERVERS, **given}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match="RELAY_TLS_KEY: a TLS certificate and its key are set both or neither"):
        Settings.read()


def test_without_a_certificate_there_is_nothing_to_prepare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty variables are as good as none."""
    for name, value in {**SERVERS, CERTIFICATE: "", KEY: ""}.items():
        monkeypatch.setenv(name, value)
    certificate.prepare_tls(Settings.read())


def test_a_missing_file_is_one_sentence_and_the_end(settings: Settings, pair: Pair, tmp_path: Path) -> None:
    """The relay names the variable and the file in its log, and exits with 1 before it has touched anything else."""
    variables = {"DATABASE_URL": settings.database_url, "REDIS_URL": settings.redis_url}
    missing = {CERTIFICATE: str(tmp_path / "None.pem"), KEY: str(pair.key)}
    done = subprocess.run(
        [sys.executable, "-m", "relay"], env={**variables, **missing}, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 1
    (line,) = (done.stdout + done.stderr).splitlines()
    reason = json.loads(line)["reason"]
    assert f"{CERTIFICATE}: {tmp_path}/None.pem cannot be read (No such file or directory)" in reason


def test_a_key_that_is_no_files_is_named(settings: Settings, pair: Pair, tmp_path: Path) -> None:
    """The other variable, when it is the other file."""
    with pytest.raises(SettingsError, match=rf"{KEY}: .*none\.key cannot be read"):
        _prepare(settings, Pair(pair.certificate, tmp_path / "none.key"))


def _encrypt(pair: Pair) -> None:
    key = load_pem_private_key(pair.key.read_bytes(), None)
    pair.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))


def _swap(pair: Pair) -> None:
    pair.key.write_bytes(Authority(pair.key.parent, "another").sign().key.read_bytes())


@pytest.mark.parametrize(
    "spoil",
    [
        _encrypt,
        _swap,
        lambda pair: pair.key.write_bytes(b""),
        lambda pair: pair.certificate.write_bytes(b"no certificate"),
        lambda pair: pair.certificate.write_bytes(pair.key.read_bytes()),
    ],
    ids=["encrypted", "swapped", "empty", "garbled", "key_twice"],
)
def test_files_that_do_not_fit_are_one_sentence(
    settings: Settings, pair: Pair, spoil: Callable[[Pair], object]
) -> None:
    """An encrypted key is not asked about on a terminal, and nothing of the files is in the error."""
    spoil(pair)
    with pytest.raises(SettingsError, match="do not go together") as caught:
        _prepare(settings, pair)
    assert len(str(caught.value)) < 300
    assert "BEGIN" not in str(caught.value)


@asynccontextmanager
async def _serve(pair: Pair, http: type[asyncio.Protocol]) -> AsyncIterator[int]:
    """The server as the relay configures it, with nothing behind it; gives its port."""
    config = uvicorn.Config(
        Starlette(),
        log_config=None,
        lifespan="off",
        http=http,
        ws=BoundedWebSocket,
        ssl_certfile=pair.certificate,
        ssl_keyfile=pair.key,
    )
    server = PartServer(config)
    with listen("127.0.0.1", 0, "PORT") as listener:
        task = asyncio.create_task(server.serve([listener]))
        yield listener.getsockname()[1]
        server.should_exit = True
        await task


async def test_what_is_accepted_over_tls_sends_at_once(authority: Authority, pair: Pair) -> None:
    """TCP_NODELAY is on under TLS, too: no chunk waits for an acknowledgement."""
    accepted: list[int] = []

    class Looking(PromptHttp):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            below: socket.socket = transport.get_extra_info("socket")
            accepted.append(below.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            super().connection_made(transport)

    async with (
        _serve(pair, Looking) as port,
        httpx2.AsyncClient(verify=_trusting(authority), trust_env=False) as client,
    ):
        assert (await client.get(f"https://127.0.0.1:{port}/")).status_code == 404
    assert accepted
    assert all(accepted)


async def test_a_handshake_that_does_not_come_is_not_waited_for(
    settings: Settings, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection without a handshake is closed after a few seconds, and not after asyncio's minute."""
    monkeypatch.setattr(constants, "SSL_HANDSHAKE_TIMEOUT", constants.SSL_HANDSHAKE_TIMEOUT)
    monkeypatch.setattr(certificate, "HANDSHAKE_TIMEOUT_S", 0.05)
    _prepare(settings, pair)
    async with _serve(pair, PromptHttp) as port, asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        writer.close()
