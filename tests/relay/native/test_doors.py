"""The running relay as a stranger meets it: keys, forms, messages, sockets. No worker is needed for any of it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest
import redis
from sqlalchemy import select, update
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from storage.database import Database
from storage.redis import worker_key
from storage.settings import Settings
from storage.states import ConsentState, VoiceState
from storage.tables import consents, voices
from storage.voices.aliases import set_alias
from tests.conftest import MakeTenant, MakeVoice, wait_until
from tests.relay.conftest import announce_nobody, start_lone_relay
from tests.relay.sharing import Shared, share
from timbrelay.stack.servers import Servers

StartStack = Callable[..., Any]
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def shared(
    servers: Servers, clean_variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shared]:
    start = functools.partial(start_lone_relay, idle_timeout_s=2.0, max_recording_bytes=64 * 1024)
    with share(servers, clean_variables, tmp_path_factory.mktemp("shared"), start) as lent:
        yield lent


@pytest.fixture
def settings(shared: Shared) -> Settings:
    """Those of the one relay, without any tenant."""
    shared.empty()
    announce_nobody(shared.settings.redis_url)
    return shared.settings


@pytest.fixture
def stack(shared: Shared, settings: Settings) -> Any:
    """The one relay, which has found its worker again."""
    ready = shared.stack.metrics_urls["relay"] + "/readyz"
    wait_until(lambda: httpx2.get(ready).status_code == 200)
    return shared.stack


@pytest.fixture
async def key(make_tenant: MakeTenant) -> str:
    return (await make_tenant("acme")).key


@pytest.fixture
async def http(stack: Any, key: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=stack.relay_url, headers={"Authorization": f"Bearer {key}"}) as client:
        yield client


@pytest.fixture
async def voice(make_tenant: MakeTenant, make_voice: MakeVoice) -> str:
    """A ready voice of the tenant."""
    return str(await make_voice((await make_tenant("acme")).id, embedding=bytes(1024)))


async def _open(stack: Any, key: str) -> ClientConnection:
    url = stack.relay_url.replace("http", "ws") + "/v1/stream"
    connection = await connect(url, additional_headers={"Authorization": f"Bearer {key}"})
    assert json.loads(await connection.recv())["type"] == "hello"
    return connection


async def _ask(connection: ClientConnection, message: object) -> dict[str, Any]:
    await connection.send(message if isinstance(message, str | bytes) else json.dumps(message))
    answer: dict[str, Any] = json.loads(await asyncio.wait_for(connection.recv(), 10))
    return answer


PATHS = [
    ("POST", "/v1/consents"),
    ("POST", "/v1/voices"),
    ("GET", "/v1/voices"),
    ("GET", f"/v1/voices/{uuid4()}"),
    ("DELETE", f"/v1/voices/{uuid4()}"),
]


@pytest.mark.parametrize("header", [None, "Bearer tr_wrong", "Bearer", "Basic dXNlcg==", "tr_wrong"])
async def test_nobody_comes_in_without_a_key(stack: Any, key: str, header: str | None) -> None:
    """Every path and the socket answer 401 with the fix, on loopback as anywhere."""
    headers = {} if header is None else {"Authorization": header}
    async with httpx2.AsyncClient(base_url=stack.relay_url, headers=headers) as client:
        for method, path in PATHS:
            answer = await client.request(method, path)
            assert answer.status_code == 401
            assert answer.json()["code"] == "unauthorized"
            assert answer.headers["www-authenticate"] == "Bearer"
    with pytest.raises(InvalidStatus) as caught:
        async with connect(stack.relay_url.replace("http", "ws") + "/v1/stream", additional_headers=headers):
            pass
    assert caught.value.response.status_code == 401
    assert b"Authorization" in caught.value.response.body


@pytest.mark.parametrize("offered", [["timbrelay.v1", "bearer.{key}"], ["bearer.{key}", "timbrelay.v1"]])
async def test_a_browser_brings_its_key_as_a_subprotocol(stack: Any, key: str, offered: list[str]) -> None:
    """The relay selects the protocol and never gives the key back; a wrong key, or none, opens nothing."""
    url = stack.relay_url.replace("http", "ws") + "/v1/stream"
    async with connect(url, subprotocols=[Subprotocol(name.format(key=key)) for name in offered]) as connection:
        assert connection.subprotocol == "timbrelay.v1"
        assert json.loads(await connection.recv())["type"] == "hello"
    for wrong in ("tr_wrong", ""):
        with pytest.raises(InvalidStatus) as caught:
            async with connect(url, subprotocols=[Subprotocol("timbrelay.v1"), Subprotocol(f"bearer.{wrong}")]):
                pass
        assert caught.value.response.status_code == 401


async def test_the_relay_serves_the_document_of_its_protocol(stack: Any) -> None:
    """As it is in docs/asyncapi.json, with a tag by which a client sees that it has it already."""
    async with httpx2.AsyncClient(base_url=stack.relay_url) as client:
        answer = await client.get("/v1/asyncapi.json")
    assert answer.status_code == 200
    assert answer.json() == json.loads((ROOT / "docs" / "asyncapi.json").read_text())
    assert answer.headers["ETag"]


async def test_messages_that_cannot_be_followed_are_answered_and_the_connection_goes_on(
    stack: Any, key: str, voice: str
) -> None:
    """Unknown voices, contexts and types each get their code; afterwards the socket still works."""
    async with await _open(stack, key) as connection:
        cases: list[tuple[object, str, str | None]] = [
            ("{", "invalid_message", None),
            (b"\0\1", "invalid_message", None),
            ({"type": "sing", "context": "c"}, "invalid_message", "type"),
            ({"type": "text", "context": "c", "text": "x"}, "unknown_context", "context"),
            ({"type": "open", "context": "c", "voice": "nobody"}, "unknown_voice", "voice"),
            ({"type": "open", "context": "c", "voice": str(uuid4())}, "unknown_voice", "voice"),
        ]
        for message, code, field in cases:
            answer = await _ask(connection, message)
            assert (answer["type"], answer["code"], answer["field"]) == ("error", code, field)
        opened = await _ask(connection, {"type": "open", "context": "c", "voice": voice})
        assert (opened["type"], opened["voice"], opened["version"]) == ("opened", voice, 1)
        again = await _ask(connection, {"type": "open", "context": "c", "voice": voice})
        assert (again["code"], again["context"]) == ("context_exists", None)
        half = await _ask(connection, {"type": "text", "context": "c", "text": "half \ud83d"})
        assert (half["code"], half["field"], half["context"]) == ("invalid_message", "text", None)
        long = await _ask(connection, {"type": "text", "context": "c", "text": "a" * 50_000})
        assert (long["code"], long["field"]) == ("text_too_long", "text")


async def test_without_a_worker_contexts_are_refused_with_a_time_to_come_back(stack: Any, key: str, voice: str) -> None:
    """Nobody waits in vain: the refusal comes at once, and the relay says that it is not ready."""
    with redis.Redis.from_url(stack.services.variables["REDIS_URL"]) as client:
        client.delete(worker_key("none"))
    ready = stack.metrics_urls["relay"] + "/readyz"
    await asyncio.to_thread(wait_until, lambda: httpx2.get(ready).status_code == 503)
    async with await _open(stack, key) as connection:
        answer = await _ask(connection, {"type": "open", "context": "c", "voice": voice})
    assert (answer["code"], answer["context"], answer["retryable"]) == ("overloaded", "c", True)
    assert 500 <= answer["retry_after_ms"] <= 10_000


async def test_a_voice_opens_by_the_alias_that_its_tenant_gave_it(
    stack: Any, key: str, voice: str, make_tenant: MakeTenant, database: Database
) -> None:
    """`opened` says which voice and version that is; for another tenant the alias is nobody."""
    tenant, other = await make_tenant("acme"), await make_tenant("other")
    async with database.transaction(tenant=tenant.id) as connection:
        await set_alias(connection, tenant.id, "narrator", UUID(voice))
    async with await _open(stack, key) as socket_, await _open(stack, other.key) as stranger:
        opened = await _ask(socket_, {"type": "open", "context": "c", "voice": "narrator"})
        assert (opened["type"], opened["voice"], opened["version"]) == ("opened", voice, 1)
        answer = await _ask(stranger, {"type": "open", "context": "c", "voice": "narrator"})
        assert (answer["code"], answer["context"]) == ("unknown_voice", "c")


async def test_a_voice_that_may_not_speak_is_unknown(
    stack: Any, key: str, voice: str, make_tenant: MakeTenant, database: Database
) -> None:
    """Disabled, of a consent that has ended or expired, or being deleted: in the same words as one that never was."""
    tenant = (await make_tenant("acme")).id
    of_the_voice = consents.c.id == select(voices.c.consent_id).where(voices.c.id == UUID(voice)).scalar_subquery()
    past = datetime.now(UTC) - timedelta(seconds=1)
    ends = (
        update(voices).values(state=VoiceState.DISABLED),
        update(voices).values(state=VoiceState.DELETING),
        update(consents).where(of_the_voice).values(state=ConsentState.WITHDRAWN),
        update(consents).where(of_the_voice).values(expires_at=past),
    )
    async with await _open(stack, key) as socket_:
        for end in ends:
            async with database.transaction(tenant=tenant) as connection:
                await connection.execute(end)
            answer = await _ask(socket_, {"type": "open", "context": "c", "voice": voice})
            assert answer["code"] == "unknown_voice"
            async with database.transaction(tenant=tenant) as connection:
                await connection.execute(update(voices).values(state=VoiceState.READY))
                await connection.execute(update(consents).values(state=ConsentState.ACTIVE, expires_at=None))
        assert (await _ask(socket_, {"type": "open", "context": "c", "voice": voice}))["type"] == "opened"


async def test_another_tenants_voice_cannot_be_spoken_with(stack: Any, voice: str, make_tenant: MakeTenant) -> None:
    """For the other tenant it is an unknown voice."""
    async with await _open(stack, (await make_tenant("other")).key) as connection:
        answer = await _ask(connection, {"type": "open", "context": "c", "voice": voice})
        assert answer["code"] == "unknown_voice"


async def _close_code(connection: ClientConnection) -> int:
    with pytest.raises(ConnectionClosed) as caught:
        async with asyncio.timeout(15):
            while True:
                await connection.recv()
    assert caught.value.rcvd is not None
    return caught.value.rcvd.code


async def test_a_message_over_64_kib_closes_with_1009(stack: Any, key: str) -> None:
    """The bound holds before anything is parsed."""
    async with await _open(stack, key) as connection:
        await connection.send("a" * 70_000)
        assert await _close_code(connection) == 1009


async def test_bytes_that_are_not_utf8_close_with_1007(stack: Any, key: str) -> None:
    """RFC 6455, section 8.1."""
    async with await _open(stack, key) as connection:
        connection.protocol.send_text(b"\xff\xfe not text")
        connection.send_data()
        assert await _close_code(connection) == 1007


async def test_a_client_that_talks_nonsense_is_let_go_with_1008(stack: Any, key: str) -> None:
    """Errors are for mistakes; a flood of them is not one."""
    async with await _open(stack, key) as connection:
        for _ in range(40):
            await connection.send("nonsense")
        assert await _close_code(connection) == 1008


async def test_a_flood_of_nonsense_from_a_client_with_an_open_context_ends(stack: Any, key: str, voice: str) -> None:
    """The hang-up happens although messages go on arriving, and the context's place is free again."""
    async with await _open(stack, key) as connection:
        await _ask(connection, {"type": "open", "context": "c", "voice": voice})

        async def flood() -> None:
            while True:
                await connection.send("nonsense")

        flooding = asyncio.create_task(flood())
        # What was sent and not read makes the kernel reset the connection, so the close code may not arrive.
        with pytest.raises(ConnectionClosed):
            async with asyncio.timeout(15):
                while True:
                    await connection.recv()
        await asyncio.gather(flooding, return_exceptions=True)
    metrics = stack.metrics_urls["relay"] + "/metrics"
    await asyncio.to_thread(wait_until, lambda: "timbrelay_contexts 0.0" in httpx2.get(metrics).text)


async def test_a_connection_where_nothing_is_said_is_closed(stack: Any, key: str) -> None:
    """Idle sockets have an end."""
    async with await _open(stack, key) as connection:
        assert await _close_code(connection) == 1008


async def test_connections_without_a_request_are_closed_and_take_no_place(stack: Any, http: httpx2.AsyncClient) -> None:
    """Silent sockets, and one with half a request, are gone after some seconds."""
    port = int(stack.relay_url.rsplit(":", 1)[1])
    connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
    connections[0][1].write(b"GET /v1/voices HTTP/1.1\r\nHost: x\r\n")
    async with asyncio.timeout(20):
        for reader, writer in connections:
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
    assert (await http.get("/v1/voices")).status_code == 200


async def test_pings_whose_pongs_nobody_reads_end_the_connection(stack: Any, key: str) -> None:
    """A flood of pings cannot fill the relay's memory."""
    connection = await _open(stack, key)
    connection.transport.pause_reading()
    async with asyncio.timeout(30):
        while not connection.transport.is_closing():
            for _ in range(500):
                connection.protocol.send_ping(b"x" * 125)
                connection.send_data()
            with contextlib.suppress(ConnectionError):
                await connection.drain()
            await asyncio.sleep(0)


async def test_a_relay_that_stops_says_so_with_1012(start_relay: StartStack, key: str) -> None:
    """Clients learn that the service restarts, and the process ends in order."""
    stack = start_relay()
    async with await _open(stack, key) as connection:
        stack.processes["relay"].ask_to_stop()
        assert await _close_code(connection) == 1012
    assert await asyncio.to_thread(stack.processes["relay"].wait, 10.0)
    assert stack.processes["relay"].exit_code == 0


async def test_a_taken_port_is_one_sentence(settings: Settings) -> None:
    """The second relay on a port ends with exit code 1 and no traceback."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        environment = {
            **os.environ,
            "DATABASE_URL": settings.database_url,
            "REDIS_URL": settings.redis_url,
            "TIMBRELAY_ROOT_KEY": settings.root_key.get_secret_value(),
            "TIMBRELAY_RELAY_PORT": str(taken.getsockname()[1]),
            "TIMBRELAY_RELAY_METRICS_PORT": "0",
        }
        done = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-m", "relay"], env=environment, capture_output=True, text=True, timeout=30
        )
    assert done.returncode == 1
    assert "already in use" in done.stderr
    assert "TIMBRELAY_RELAY_PORT" in done.stderr
    assert "Traceback" not in done.stderr
