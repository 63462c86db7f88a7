"""relay.revocations: keys, tenants and voices that end while their connections are open."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest
from redis.asyncio import Redis
from sqlalchemy import update
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus

from relay import revocations
from relay.revocations import REVOKED, Watch
from storage.database import Database
from storage.redis import connect as connect_redis
from storage.settings import Settings
from storage.states import TenantState
from storage.streams.broadcasts import revoke_key as tell_relays
from storage.streams.broadcasts import silence_voice
from storage.tables import api_keys, tenants
from storage.tenancy import api_keys as keys
from tests.conftest import DEADLINE_S, MakeTenant, MakeVoice, RunningStack, StartStack, Tenant
from tests.relay.conftest import EMBEDDING, hear_until, noted, open_context, open_socket

CHUNK_MS = 80
WITHIN_S = 1.0
"""The promise: nothing is heard longer than that after it was forbidden."""
LONG_TEXT = "It goes on, and on, and on, for as long as anybody listens. " * 40


@pytest.fixture
async def redis(settings: Settings) -> AsyncIterator[Redis]:
    client = connect_redis(settings.redis_url)
    yield client
    await client.aclose()


async def revoke(database: Database, redis: Redis, key_id: UUID) -> float:
    """As the API does it; returns when it was done."""
    async with database.transaction(operator=True) as connection:
        assert await keys.revoke_key(connection, key_id)
    await tell_relays(redis, key_id)
    return time.monotonic()


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


@dataclass(eq=False)
class Peer:
    """An open connection, as the watch sees it."""

    tenant: UUID
    key_id: UUID
    voices: frozenset[UUID] = frozenset()
    ends: asyncio.Event = field(default_factory=asyncio.Event)
    silenced: list[UUID] = field(default_factory=list)

    def cut_off(self, reason: str) -> None:
        assert reason
        self.ends.set()

    def silence(self, voice: UUID) -> None:
        self.silenced.append(voice)
        self.ends.set()


def peer_of(tenant: Tenant, **more: Any) -> Peer:
    return Peer(tenant.id, tenant.key_id, **more)


@asynccontextmanager
async def watching(redis: Redis, database: Database) -> AsyncIterator[Watch]:
    """A watch that listens."""
    watch = Watch(redis, database)
    task = asyncio.create_task(watch.run())
    try:
        async with asyncio.timeout(DEADLINE_S):
            while (await redis.pubsub_numsub("timbrelay:revocations", "timbrelay:silences"))[0][1] < 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        yield watch
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def wait_for(peer: Peer) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await peer.ends.wait()


async def test_a_key_revoked_between_its_look_up_and_its_connection_is_found(
    database: Database, redis: Redis, make_tenant: MakeTenant
) -> None:
    """The broadcast came before there was anything to close: who joins after any news is looked up again."""
    tenant, other = await make_tenant("acme"), await make_tenant("other")
    async with watching(redis, database) as watch:
        looked_up_at = time.monotonic()
        stranger = peer_of(other)
        watch.join(stranger, looked_up_at)
        witness = Peer(uuid4(), uuid4())
        watch.join(witness, looked_up_at)
        await revoke(database, redis, tenant.key_id)
        await tell_relays(redis, witness.key_id)
        await wait_for(witness)
        peer = peer_of(tenant)
        watch.join(peer, looked_up_at)
        await wait_for(peer)
        assert not stranger.ends.is_set()


async def test_keys_are_looked_up_again_although_nothing_was_heard(
    database: Database, redis: Redis, make_tenant: MakeTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Revoked in the database by hand: found with the next look, and who has left is not asked for."""
    monkeypatch.setattr(revocations, "CHECK_EVERY_S", 0.1)
    tenant, other = await make_tenant("acme"), await make_tenant("other")
    async with watching(redis, database) as watch:
        peer, left, stranger = peer_of(tenant), peer_of(tenant), peer_of(other)
        for one in (peer, left, stranger):
            watch.join(one, time.monotonic())
        watch.leave(left)
        async with database.transaction(operator=True) as connection:
            await keys.revoke_key(connection, tenant.key_id)
        await wait_for(peer)
        assert not left.ends.is_set()
        assert not stranger.ends.is_set()


@pytest.mark.parametrize("state", [TenantState.SUSPENDED, TenantState.DELETING, TenantState.DELETED])
async def test_the_look_finds_tenants_that_may_not_speak_any_more(
    database: Database,
    redis: Redis,
    make_tenant: MakeTenant,
    monkeypatch: pytest.MonkeyPatch,
    state: TenantState,
) -> None:
    """A key that may still look on while its tenant is deleted is no key to speak with."""
    monkeypatch.setattr(revocations, "CHECK_EVERY_S", 0.1)
    tenant, other = await make_tenant("acme"), await make_tenant("other")
    async with watching(redis, database) as watch:
        peer, stranger = peer_of(tenant), peer_of(other)
        watch.join(peer, time.monotonic())
        watch.join(stranger, time.monotonic())
        async with database.transaction(operator=True) as connection:
            await connection.execute(update(tenants).where(tenants.c.id == tenant.id).values(state=state))
        await wait_for(peer)
        assert not stranger.ends.is_set()


async def test_a_silence_that_was_missed_is_found_among_the_tombstones(
    database: Database, redis: Redis, make_tenant: MakeTenant
) -> None:
    """Whenever something may have been missed, the voices in use are looked for."""
    tenant, silenced, kept = await make_tenant("acme"), uuid4(), uuid4()
    await silence_voice(redis, silenced)
    async with watching(redis, database) as watch:
        peer, stranger = peer_of(tenant, voices=frozenset({silenced, kept})), peer_of(tenant, voices=frozenset({kept}))
        watch.join(stranger, 0.0)
        watch.join(peer, 0.0)
        await wait_for(peer)
        assert peer.silenced == [silenced]
        assert not stranger.ends.is_set()


async def test_the_watch_outlives_postgres_and_redis(
    settings: Settings, database: Database, redis: Redis, make_tenant: MakeTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be asked now is asked again until there is an answer."""
    tenant = await make_tenant("acme")
    nowhere = Database("postgresql://nobody@127.0.0.1:1/none", settings.service_role)
    async with watching(redis, nowhere) as watch:
        peer = peer_of(tenant)
        watch.join(peer, 0.0)
        async with database.transaction(operator=True) as connection:
            await keys.revoke_key(connection, tenant.key_id)
        monkeypatch.setattr(watch, "_database", database)
        await wait_for(peer)
    await nowhere.close()
