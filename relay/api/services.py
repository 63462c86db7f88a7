"""What the handlers work with, and the one way they go to Postgres: a transaction within a bound of time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar
from uuid import UUID

import structlog
from celery import Celery
from fastapi import Depends, Request
from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import AsyncConnection

from relay.api.keeping import Kept
from relay.api.uploads import UploadRoom
from relay.entrance.admission import Admission
from relay.entrance.rate_limits import RateLimiter
from storage.database import Database, bounded
from storage.encryption.keyring import Keyring
from storage.evidence.erasure import Erasure
from storage.evidence.jws import PublicKeys

RECEIPT_KEYS_TTL_S = 5.0

log = structlog.get_logger()

Outcome = TypeVar("Outcome")
Work = Callable[[AsyncConnection], Awaitable[Outcome]]


@dataclass(frozen=True, slots=True)
class Services:
    """The servers behind the API, and what bounds their use."""

    database: Database
    redis: Redis
    celery: Celery
    keyring: Keyring
    limiter: RateLimiter
    admission: Admission
    erasure: Erasure
    max_recording_bytes: int
    uploads: UploadRoom
    receipt_keys: Kept[PublicKeys] = field(default_factory=lambda: Kept(RECEIPT_KEYS_TTL_S))
    left_behind: set[asyncio.Task[Any]] = field(default_factory=set)
    """What requests have begun and did not wait for; each is bounded by itself."""

    async def within(self, tenant: UUID | None, work: Work[Outcome]) -> Outcome:
        """What `work` gives in one transaction in which only the tenant's rows exist; raises ServerUnavailable."""
        return await bounded(self._transact(tenant, work, operator=False))

    async def as_operator(self, tenant: UUID | None, work: Work[Outcome]) -> Outcome:
        """The same for the operator, who sees all tenants and keys, and nobody's voice."""
        return await bounded(self._transact(tenant, work, operator=True))

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Let a task end by itself although nobody waits for it any more."""
        self.left_behind.add(task)
        task.add_done_callback(self._drop)

    def _drop(self, task: asyncio.Task[Any]) -> None:
        self.left_behind.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("what a request began has failed", reason=type(error).__name__)

    async def _transact(self, tenant: UUID | None, work: Work[Outcome], *, operator: bool) -> Outcome:
        async with self.database.transaction(tenant=tenant, operator=operator) as connection:
            return await work(connection)


def _find_services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


Here = Annotated[Services, Depends(_find_services)]
"""A handler's parameter: the services of its relay."""
