"""worker.upkeep.checkpoints: every audit log's head is signed in time, and a log that was changed raises an alarm."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest
from celery import Celery
from redis.asyncio import Redis
from sqlalchemy import text

from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.evidence.audit import PLATFORM, Act, append
from storage.settings import Settings
from worker.upkeep.checkpoints import CLOSED_FOR, sign_heads
from worker.upkeep.rounds import Tools

ACTIVE, CLOSED, LONG_CLOSED = (uuid4() for _ in range(3))
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
async def superuser(settings: Settings) -> AsyncIterator[Database]:
    opened = Database(settings.owner_url, "")
    yield opened
    await opened.close()


@pytest.fixture
async def tools(settings: Settings, database: Database, keyring: Keyring) -> AsyncIterator[Tools]:
    async with Redis.from_url(settings.redis_url) as redis:
        yield Tools(database, redis, keyring, Celery(), clock=lambda: NOW)


async def signed(superuser: Database) -> set[tuple[UUID, int]]:
    async with superuser.transaction() as connection:
        rows = await connection.execute(text("SELECT tenant_id, sequence FROM audit_checkpoints"))
        return {(row.tenant_id, row.sequence) for row in rows}


async def test_every_log_that_has_grown_is_signed(tools: Tools, superuser: Database) -> None:
    """The platform's log, every tenant's, and for a week those of deleted ones; a changed log is counted."""
    states = {ACTIVE: ("active", None), CLOSED: ("deleted", NOW), LONG_CLOSED: ("deleted", NOW - CLOSED_FOR * 2)}
    insert = text("INSERT INTO tenants (id, name, state, deleted_at) VALUES (:id, CAST(:id AS text), :state, :at)")
    async with superuser.transaction() as connection:
        for tenant, (state, at) in states.items():
            await connection.execute(insert, {"id": tenant, "state": state, "at": at})
    for tenant in (PLATFORM, *states):
        async with tools.database.transaction(tenant=tenant) as connection:
            await append(connection, tenant, *(Act("system:test", "voice.deleted", "voice", "v1", "cli") for _ in "ab"))
    assert await sign_heads(tools) == 0
    assert await signed(superuser) == {(PLATFORM, 2), (ACTIVE, 2), (CLOSED, 2)}
    async with superuser.transaction() as connection:
        await connection.execute(text("SET LOCAL session_replication_role = replica"))
        await connection.execute(text("UPDATE audit_log SET actor = 'key:1' WHERE sequence = 2"))
    assert await sign_heads(tools) == 3
    assert len(await signed(superuser)) == 3
