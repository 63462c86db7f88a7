"""What the tests of upkeep share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from storage.cold_jobs import make_celery
from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.redis import connect
from storage.settings import Settings
from worker.upkeep.rounds import Tools


@pytest.fixture
async def tools(settings: Settings, database: Database, keyring: Keyring) -> AsyncIterator[Tools]:
    """What a duty works with, on the test's servers and by the real clock; a round has as long as it needs."""
    redis = connect(settings.redis_url)
    yield Tools(database, redis, keyring, make_celery(settings), ends_at=float("inf"))
    await redis.aclose()
