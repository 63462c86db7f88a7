"""Deletions that were not done at once: tried again until every store is empty."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cached_property
from uuid import UUID

import structlog
from celery import Celery, Task
from celery.exceptions import SoftTimeLimitExceeded

from storage.cold_jobs import DELETE
from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.encryption.providers import KeyProvider
from storage.encryption.providers.choice import open_provider
from storage.errors import ServerUnavailable
from storage.evidence.deletions import Deletion, find_deletion
from storage.evidence.erasure import Erasure
from storage.redis import connect
from storage.settings import Settings
from storage.states import DeletionState

log = structlog.get_logger()

LONGEST_COUNTDOWN_S = 20.0
"""What is due later than this is found by the look for lost work, and its message not held for so long."""
_CONNECTIONS = 4
_UNKNOWN_S = 5.0
"""When to come back if the record could not even be read."""


class Deleting:
    """What deleting needs, made once a process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @cached_property
    def _provider(self) -> KeyProvider:
        return open_provider(self._settings)

    async def attempt(self, tenant: UUID, deletion_id: UUID) -> float | None:
        """One attempt, if it is due; in how many seconds to come back, None for not at all.

        Raises ServerUnavailable when the record cannot be read.
        """
        database = Database.for_service(self._settings, pool_size=_CONNECTIONS)
        redis = connect(self._settings.redis_url, connections=_CONNECTIONS)
        try:
            async with database.transaction(tenant=tenant) as connection:
                found = await find_deletion(connection, tenant, deletion_id)
            if found is not None and _due_in_s(found) == 0:
                erasure = Erasure(database, redis, Keyring(self._provider))
                found = await erasure.run(tenant, deletion_id, within_s=self._settings.task_limit_s / 2)
        finally:
            await redis.aclose()
            await database.close()
        return None if found is None else choose_countdown(found.state, _due_in_s(found), self._settings.task_limit_s)


def choose_countdown(state: DeletionState, due_in_s: float, limit_s: float) -> float | None:
    """In how many seconds this message comes back; None when there is nothing to come back for, or not soon.

    A message that came too early waits, rather than make an attempt beside another's; never so long that it, which is
    not acknowledged, is taken for a dead worker's.
    """
    if state is DeletionState.DONE or due_in_s > LONGEST_COUNTDOWN_S:
        return None
    return max(0.5, min(due_in_s, limit_s / 2))


def register_deletion(app: Celery, settings: Settings) -> None:
    """Make deletion known to a Celery application under its name."""
    app.task(_make_task(Deleting(settings)), bind=True, name=DELETE, max_retries=None)


def _make_task(deleting: Deleting) -> Callable[..., None]:
    def delete(task: Task, tenant: str, deletion_id: str) -> None:
        try:
            countdown = asyncio.run(deleting.attempt(UUID(tenant), UUID(deletion_id)))
        except (ServerUnavailable, SoftTimeLimitExceeded) as error:
            log.warning("deletion put off", deletion=deletion_id, reason=str(error))
            countdown = _UNKNOWN_S
        if countdown is not None:
            raise task.retry(countdown=countdown)

    return delete


def _due_in_s(deletion: Deletion) -> float:
    return max(0.0, (deletion.next_attempt_at - datetime.now(UTC)).total_seconds())
