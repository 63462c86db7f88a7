"""Keys, tenants and voices that end while sockets of a running relay are open."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import httpx2
import pytest
from redis.asyncio import Redis
from sqlalchemy import update
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus

from relay.entrance.revocations import REVOKED
from storage.database import Database
from storage.states import TenantState
from storage.streams.broadcasts import revoke_key as tell_relays
from storage.streams.broadcasts import silence_voice
from storage.tables import api_keys, tenants
from storage.tenancy import api_keys as keys
from tests.conftest import DEADLINE_S, MakeTenant, MakeVoice, RunningStack, StartStack
from tests.relay.conftest import EMBEDDING, hear_until, noted, open_context, open_socket, revoke

CHUNK_MS = 80
WITHIN_S = 1.0
"""The promise: nothing is heard longer than that after it was forbidden."""
LONG_TEXT = "It goes on, and on, and on, for as long as anybody listens. " * 40


async def closed(connection: ClientConnection) -> tuple[int, str]:
    """Reads to the end: code and reason."""
    with pytest.raises(ConnectionClosed) as caught:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                await connection.recv()
    assert caught.value.rcvd is not None
    return caught.value.rcvd.code, caught.value.rcvd.reason


async def figure(stack: RunningStack, name: str) -> float:
    async with httpx2.AsyncClient() as client:
        text = (await client.get(stack.metrics_urls["relay"] + "/metrics")).text
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name))


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_a_revoked_key_silences_and_closes_what_it_opened(
    start_stack: StartStack, make_tenant: MakeTenant, make_voice: MakeVoice, database: Database, redis: Redis
) -> None:
    """Speaking or idle: 1008 with the reason, within a second; another key of the same tenant speaks on."""
    stack = start_stack(only=("worker", "relay"))
    revoked, kept = await make_tenant("acme"), await make_tenant("acme")
    voice = await make_voice(revoked.id, embedding=EMBEDDING)
    async with (
        open_socket(stack, revoked.key) as speaking,
        open_socket(stack, revoked.key) as idle,
        open_socket(stack, kept.key) as other,
    ):
        for connection in (speaking, other):
            await open_context(connection, voice)
            await connection.send(json.dumps({"type": "text", "context": "c", "text": LONG_TEXT}))
            await hear_until(connection, bytes)
        revoked_at = await revoke(database, redis, revoked.key_id)
        assert list(await asyncio.gather(closed(speaking), closed(idle))) == [(1008, REVOKED)] * 2
        assert time.monotonic() - revoked_at < WITHIN_S
        await until(lambda: _is(stack, "timbrelay_connections ", 1))
        assert await figure(stack, "timbrelay_contexts ") == 1
        for _ in range(10):
            await hear_until(other, bytes)
        with pytest.raises(InvalidStatus) as caught:
            async with open_socket(stack, revoked.key):
                pass
        assert caught.value.response.status_code == 401


async def _is(stack: RunningStack, name: str, value: float) -> bool:
    return await figure(stack, name) == value


async def test_a_client_that_does_not_read_is_cut_off_all_the_same(
    start_stack: StartStack, make_tenant: MakeTenant, make_voice: MakeVoice, database: Database, redis: Redis
) -> None:
    """Nobody waits for it to take its close frame: within a second nothing of its connection is left.

    What is on record is what was sent, not what was made for it.
    """
    stack = start_stack(only=("worker", "relay"), send_timeout_s=60.0)
    tenant = await make_tenant("acme")
    voice = await make_voice(tenant.id, embedding=EMBEDDING)
    own = socket.socket()
    own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    port = int(stack.relay_url.rsplit(":", 1)[1])
    await asyncio.get_running_loop().run_in_executor(None, own.connect, ("127.0.0.1", port))
    async with open_socket(stack, tenant.key, sock=own) as connection:
        for number in range(8):
            await open_context(connection, voice, f"c{number}")
        connection.transport.pause_reading()
        # More than the buffers of a kernel hold.
        for number in range(8):
            await connection.send(json.dumps({"type": "text", "context": f"c{number}", "text": LONG_TEXT}))

        written = 'timbrelay_relay_stage_seconds_count{stage="send"}'

        async def is_stuck() -> bool:
            return await figure(stack, "timbrelay_chunks_sent_total") - await figure(stack, written) > 10

        await until(is_stuck)
        revoked_at = await revoke(database, redis, tenant.key_id)
        await until(lambda: _is(stack, "timbrelay_connections ", 0))
        assert time.monotonic() - revoked_at < WITHIN_S
        noted_ms = sum(note.audio_ms for note in await noted(redis, tenant.id, 8))
        assert 0 < noted_ms <= CHUNK_MS * (await figure(stack, written) + 1)
        # Nor does its socket wait for it: what it still says meets nobody.
        with pytest.raises(ConnectionClosed):
            async with asyncio.timeout(DEADLINE_S / 3):
                while True:
                    await connection.send("{}")
                    await asyncio.sleep(0.02)


async def test_an_expired_key_ends_its_connections_when_it_expires(
    start_relay: StartStack, make_tenant: MakeTenant, database: Database
) -> None:
    """Nobody has to tell the relay."""
    stack = start_relay()
    tenant = await make_tenant("acme")
    expires_at = datetime.now(UTC) + timedelta(seconds=2)
    async with database.transaction(operator=True) as connection:
        await connection.execute(update(api_keys).where(api_keys.c.id == tenant.key_id).values(expires_at=expires_at))
    async with open_socket(stack, tenant.key) as connection:
        code, reason = await closed(connection)
        late_s = (datetime.now(UTC) - expires_at).total_seconds()
    assert (code, "expired" in reason) == (1008, True)
    assert 0 <= late_s < WITHIN_S


@pytest.mark.parametrize("state", [TenantState.SUSPENDED, TenantState.DELETING, TenantState.DELETED])
async def test_a_tenant_that_may_not_speak_any_more_is_closed(
    start_relay: StartStack, make_tenant: MakeTenant, database: Database, redis: Redis, state: TenantState
) -> None:
    """With its id broadcast all its connections end, whatever their key; another tenant's go on."""
    stack = start_relay()
    tenant, second, other = await make_tenant("acme"), await make_tenant("acme"), await make_tenant("other")
    async with (
        open_socket(stack, tenant.key) as first,
        open_socket(stack, second.key) as again,
        open_socket(stack, other.key) as stranger,
    ):
        async with database.transaction(operator=True) as connection:
            await connection.execute(update(tenants).where(tenants.c.id == tenant.id).values(state=state))
        await tell_relays(redis, tenant.id)
        told_at = time.monotonic()
        assert [code for code, _ in await asyncio.gather(closed(first), closed(again))] == [1008, 1008]
        assert time.monotonic() - told_at < WITHIN_S
        await stranger.ping()


async def test_a_rotated_key_ends_its_connections_when_its_overlap_is_over(
    start_relay: StartStack, make_tenant: MakeTenant
) -> None:
    """It had no end when they were opened; its successor's connections go on."""
    stack = start_relay()
    tenant = await make_tenant("acme")
    async with open_socket(stack, tenant.key) as connection, httpx2.AsyncClient(base_url=stack.relay_url) as client:
        asked_at = time.monotonic()
        headers = {"Authorization": f"Bearer {tenant.key}"}
        answer = await client.post(f"/v1/admin/keys/{tenant.key_id}/rotate", json={"overlap_s": 2}, headers=headers)
        answered_at = time.monotonic()
        assert answer.status_code == 201
        async with open_socket(stack, answer.json()["key"]) as successor:
            assert (await closed(connection))[0] == 1008
            assert time.monotonic() - asked_at >= 2
            assert time.monotonic() - answered_at < 2 + WITHIN_S
            await (await successor.ping())


async def test_what_the_api_revokes_or_suspends_is_closed(
    start_relay: StartStack, make_tenant: MakeTenant, database: Database
) -> None:
    """A tenant's admin ends one key, the operator the whole tenant: each within a second of the answer."""
    stack = start_relay()
    admin, speaker = await make_tenant("acme"), await make_tenant("acme", scopes=("speak",))
    async with database.transaction(operator=True) as transaction:
        _, made = await keys.create_key(
            transaction, None, name="operator", scopes=[keys.Scope.OPERATOR], expires_at=None
        )
    operator = {"Authorization": f"Bearer {made.get_secret_value()}"}
    path = f"/v1/operator/tenants/{admin.id}"
    async with (
        open_socket(stack, speaker.key) as first,
        open_socket(stack, admin.key) as second,
        httpx2.AsyncClient(base_url=stack.relay_url) as client,
    ):
        by_admin = {"Authorization": f"Bearer {admin.key}"}
        assert (await client.delete(f"/v1/admin/keys/{speaker.key_id}", headers=by_admin)).status_code == 204
        answered_at = time.monotonic()
        assert await closed(first) == (1008, REVOKED)
        assert time.monotonic() - answered_at < WITHIN_S
        await (await second.ping())
        tag = (await client.get(path, headers=operator)).headers["ETag"]
        answer = await client.patch(path, json={"state": "suspended"}, headers={**operator, "If-Match": tag})
        assert answer.status_code == 200
        answered_at = time.monotonic()
        assert await closed(second) == (1008, REVOKED)
        assert time.monotonic() - answered_at < WITHIN_S


async def test_a_key_that_is_revoked_while_redis_is_away_ends_when_it_is_back(
    start_relay: StartStack, make_tenant: MakeTenant, database: Database
) -> None:
    """The broadcast is lost, and the keys of all open connections are looked up again."""
    stack = start_relay()
    tenant, other = await make_tenant("acme"), await make_tenant("other")
    async with open_socket(stack, tenant.key) as connection, open_socket(stack, other.key) as stranger:
        assert stack.valkey is not None
        stack.valkey.ask_to_stop()
        assert await asyncio.to_thread(stack.valkey.wait, DEADLINE_S)
        try:
            async with database.transaction(operator=True) as transaction:
                assert await keys.revoke_key(transaction, tenant.key_id)
        finally:
            stack.valkey.start()
        assert await closed(connection) == (1008, REVOKED)
        await (await stranger.ping())


async def test_a_silenced_voice_ends_what_is_spoken_with_it_whatever_the_workers_do(
    start_stack: StartStack, make_tenant: MakeTenant, make_voice: MakeVoice, redis: Redis
) -> None:
    """The relay hears of it itself: `voice_unavailable` within a second, and another voice speaks on."""
    stack = start_stack(only=("worker", "relay"))
    tenant = await make_tenant("acme")
    gone, kept = await make_voice(tenant.id, embedding=EMBEDDING), await make_voice(tenant.id, embedding=EMBEDDING)
    async with open_socket(stack, tenant.key) as speaking, open_socket(stack, tenant.key) as other:
        for connection, voice in ((speaking, gone), (other, kept)):
            await open_context(connection, voice)
            await connection.send(json.dumps({"type": "text", "context": "c", "text": LONG_TEXT}))
            await hear_until(connection, bytes)
        stack.pause("worker")
        await silence_voice(redis, gone)
        silenced_at = time.monotonic()
        error = await hear_until(speaking, "error")
        assert (error["code"], error["context"], error["retryable"]) == ("voice_unavailable", "c", False)
        assert time.monotonic() - silenced_at < WITHIN_S
        stack.resume("worker")
        for _ in range(10):
            await hear_until(other, bytes)


@pytest.mark.parametrize("scopes", [("enrol",), ("admin",), ("enrol", "admin")])
async def test_only_a_key_that_may_speak_opens_a_socket(
    start_relay: StartStack, make_tenant: MakeTenant, scopes: tuple[str, ...]
) -> None:
    """403 before the upgrade, with the API's own form of an error."""
    stack = start_relay()
    with pytest.raises(InvalidStatus) as caught:
        async with open_socket(stack, (await make_tenant("acme", scopes=scopes)).key):
            pass
    response = caught.value.response
    assert (response.status_code, response.headers["Content-Type"]) == (403, "application/problem+json")
    assert json.loads(response.body or b"")["code"] == "insufficient_scope"
