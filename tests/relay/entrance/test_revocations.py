"""relay.entrance.revocations: what a watch hears, and what it finds that it has missed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from redis.asyncio import Redis
from sqlalchemy import update

from relay.entrance import revocations
from relay.entrance.known_keys import KnownKeys
from relay.entrance.revocations import Watch
from storage.database import Database
from storage.settings import Settings
from storage.states import TenantState
from storage.streams.broadcasts import revoke_key as tell_relays
from storage.streams.broadcasts import silence_voice
from storage.tables import tenants
from storage.tenancy import api_keys as keys
from tests.conftest import DEADLINE_S, MakeTenant, Tenant
from tests.relay.conftest import revoke


@dataclass(eq=False)
class Peer:
    """An open connection, as the watch sees it."""

    tenant: UUID
    key_id: UUID
    voices: frozenset[UUID] = frozenset()
    ends: asyncio.Event = field(default_factory=asyncio.Event)
    silenced: list[UUID] = field(default_factory=list)
    expires_at: datetime | None = None

    def cut_off(self, reason: str) -> None:
        assert reason
        self.ends.set()

    def silence(self, voice: UUID) -> None:
        self.silenced.append(voice)
        self.ends.set()


def peer_of(tenant: Tenant, **more: Any) -> Peer:
    return Peer(tenant.id, tenant.key_id, **more)


@asynccontextmanager
async def watching(redis: Redis, database: Database, known: KnownKeys | None = None) -> AsyncIterator[Watch]:
    """A watch that listens."""
    watch = Watch(redis, database, known or KnownKeys())
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


async def test_a_revoked_key_is_known_no_more(database: Database, redis: Redis, make_tenant: MakeTenant) -> None:
    """As soon as the watch hears of it, connection or not."""
    tenant, other = await make_tenant("acme"), await make_tenant("other")
    known = KnownKeys()
    async with watching(redis, database, known) as watch:
        witness = Peer(uuid4(), uuid4())
        watch.join(witness, time.monotonic())
        for one in (tenant, other):
            caller = await keys.authenticate(database, one.key)
            assert caller is not None
            known.remember(keys.hash_key(one.key), caller, time.monotonic())
        await revoke(database, redis, tenant.key_id)
        await tell_relays(redis, witness.key_id)
        await wait_for(witness)
        assert [known.knows(keys.hash_key(one.key)) for one in (tenant, other)] == [False, True]


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


async def test_a_connection_learns_when_its_rotated_key_ends(
    database: Database, redis: Redis, make_tenant: MakeTenant
) -> None:
    """Any news has all keys looked up: the old one is still good, and from now on its end is known."""
    tenant = await make_tenant("acme")
    async with watching(redis, database) as watch:
        peer = peer_of(tenant)
        watch.join(peer, time.monotonic())
        async with database.transaction(operator=True) as connection:
            await keys.rotate_key(connection, tenant.key_id, timedelta(hours=1))
        await tell_relays(redis, UUID(int=0))
        async with asyncio.timeout(DEADLINE_S):
            while peer.expires_at is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert not peer.ends.is_set()
        assert timedelta(minutes=59) < peer.expires_at - datetime.now(UTC) <= timedelta(hours=1)


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
