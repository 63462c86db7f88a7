"""worker.upkeep.deletion: how long a deletion that is not done is waited for, and that it comes to its end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from redis.asyncio import Redis

from storage.database import Database
from storage.evidence.deletions import (
    Deletion,
    ObjectKind,
    Reason,
    Request,
    begin_attempt,
    find_deletion,
    request_deletion,
)
from storage.redis import connect
from storage.settings import Settings
from storage.states import DeletionState
from storage.streams.presence import announce_worker
from tests.conftest import MakeTenant, MakeVoice
from worker.upkeep.deletion import LONGEST_COUNTDOWN_S, Deleting, choose_countdown

LIMIT_S = 30.0


@pytest.fixture
async def redis(settings: Settings) -> AsyncIterator[Redis]:
    client = connect(settings.redis_url)
    yield client
    await client.aclose()


@pytest.fixture
async def tenant(make_tenant: MakeTenant) -> UUID:
    return (await make_tenant("acme")).id


async def _request(database: Database, tenant: UUID, voice: UUID) -> Deletion:
    request = Request(ObjectKind.VOICE, voice, Reason.REQUESTED, "key:test", "127.0.0.1")
    async with database.transaction(tenant=tenant) as connection:
        deletion = await request_deletion(connection, tenant, request)
    assert deletion is not None
    return deletion


@pytest.mark.parametrize(
    ("state", "due_in_s", "expected"),
    [
        (DeletionState.DONE, 0.0, None),
        (DeletionState.PARTIAL, 0.0, 0.5),
        (DeletionState.PARTIAL, 4.0, 4.0),
        (DeletionState.RUNNING, LONGEST_COUNTDOWN_S, LIMIT_S / 2),
        (DeletionState.PARTIAL, LONGEST_COUNTDOWN_S + 1, None),
    ],
)
def test_a_message_comes_back_when_it_is_due_and_is_never_held_for_long(
    state: DeletionState, due_in_s: float, expected: float | None
) -> None:
    """What is done, or due much later, is dropped; the look for lost work finds the latter."""
    assert choose_countdown(state, due_in_s, LIMIT_S) == expected


async def test_an_attempt_completes_what_is_due(
    database: Database, settings: Settings, tenant: UUID, make_voice: MakeVoice
) -> None:
    """One message is enough, and a second one finds nothing to do."""
    deletion = await _request(database, tenant, await make_voice(tenant, embedding=b"e" * 1024))
    deleting = Deleting(settings)
    for _ in range(2):
        assert await deleting.attempt(tenant, deletion.id) is None
    async with database.transaction(tenant=tenant) as connection:
        found = await find_deletion(connection, tenant, deletion.id)
    assert found is not None
    assert (found.state, found.attempts) == (DeletionState.DONE, 1)
    assert await deleting.attempt(tenant, uuid4()) is None


async def test_what_another_is_at_is_left_alone(
    database: Database, settings: Settings, tenant: UUID, make_voice: MakeVoice
) -> None:
    """A message that comes while an attempt may still run waits for its end."""
    deletion = await _request(database, tenant, await make_voice(tenant))
    async with database.transaction(tenant=tenant) as connection:
        await begin_attempt(connection, tenant, deletion.id, datetime.now(UTC) + timedelta(seconds=15))
    countdown = await Deleting(settings).attempt(tenant, deletion.id)
    assert countdown is not None
    assert 10 < countdown <= 15
    async with database.transaction(tenant=tenant) as connection:
        found = await find_deletion(connection, tenant, deletion.id)
    assert found is not None
    assert found.attempts == 1


async def test_what_is_partial_comes_back(
    database: Database, redis: Redis, settings: Settings, tenant: UUID, make_voice: MakeVoice
) -> None:
    """While a worker has not acknowledged, the next attempt is seconds away."""
    await announce_worker(redis, "stopped")
    deletion = await _request(database, tenant, await make_voice(tenant, embedding=b"e" * 1024))
    countdown = await Deleting(settings).attempt(tenant, deletion.id)
    assert countdown is not None
    assert 0.5 <= countdown <= 2.0
