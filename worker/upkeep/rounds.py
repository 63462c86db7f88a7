"""What the duties of upkeep share: what they work with, and the round through all tenants.

A round takes a few seconds at most, for enrolments wait behind it, and the next one goes on where it ended. Each tenant
is visited in transactions of its own; a fault in one keeps nothing from the others.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog
from celery import Celery
from redis.asyncio import Redis
from sqlalchemy import func, select

from storage.cold_jobs import Duty
from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.errors import ServerUnavailable
from storage.paging import Page, Position
from storage.redis import translated, upkeep_key
from storage.tenancy.tenants import Tenant, list_tenants

log = structlog.get_logger()

ORIGIN = "celery"
BUDGET_S = 3.0
_PAGE = 200
_PLACE_KEPT_S = 86_400


@dataclass(frozen=True, slots=True)
class Tools:
    """What a duty works with, for one round."""

    database: Database
    redis: Redis
    keyring: Keyring
    celery: Celery
    clock: Callable[[], datetime] | None = None
    """Another time than that of the database, for tests."""
    ends_at: float = field(default_factory=lambda: time.monotonic() + BUDGET_S)
    """When the round is over, by the monotonic clock."""

    @property
    def over(self) -> bool:
        """Whether what is left has to wait for the next round."""
        return time.monotonic() >= self.ends_at

    async def read_time(self) -> datetime:
        """What time it is by the database; this machine's clock may be wrong, and a deletion cannot be undone."""
        if self.clock is not None:
            return self.clock()
        async with self.database.transaction(operator=True) as connection:
            now: datetime = (await connection.execute(select(func.now()))).scalar_one()
        return now


Visit = Callable[[Tools, Tenant], Awaitable[int]]


async def visit_tenants(tools: Tools, duty: Duty, visit: Visit) -> int:
    """Visit tenants, newest first, from where the last round ended; how much there was to do in all.

    Nothing is done while another process is on the same round. Raises ServerUnavailable.
    """
    async with _alone(tools.database, duty) as alone:
        return await _go_round(tools, duty, visit) if alone else 0


async def _go_round(tools: Tools, duty: Duty, visit: Visit) -> int:
    done, place = 0, await _load_place(tools.redis, duty)
    while True:
        async with tools.database.transaction(operator=True) as connection:
            found = await list_tenants(connection, Page(_PAGE, place))
        for tenant in found.items:
            done += await _visit(tools, duty, visit, tenant)
            if tools.over and tenant is not found.items[-1]:
                await _save_place(tools.redis, duty, (tenant.created_at, tenant.id))
                return done
        place = found.after
        if place is None or tools.over:
            await _save_place(tools.redis, duty, place)
            return done


async def _visit(tools: Tools, duty: Duty, visit: Visit, tenant: Tenant) -> int:
    try:
        return await visit(tools, tenant)
    except ServerUnavailable:
        raise
    except Exception as error:
        log.error("upkeep failed for a tenant", duty=duty.name.lower(), tenant=str(tenant.id), exc_info=error)
        return 0


@asynccontextmanager
async def _alone(database: Database, duty: Duty) -> AsyncIterator[bool]:
    """Whether nobody else is at this duty; nobody begins it before this ends, or this process does."""
    number = int.from_bytes(hashlib.sha256(duty.value.encode()).digest()[:8], "big", signed=True)
    async with database.transaction(operator=True) as connection:
        yield bool((await connection.execute(select(func.pg_try_advisory_xact_lock(number)))).scalar())


async def _load_place(redis: Redis, duty: Duty) -> Position | None:
    async with translated():
        kept: Any = await redis.get(upkeep_key(duty.value))
    if kept is None:
        return None
    made, _, tenant = kept.decode().partition(" ")
    return datetime.fromisoformat(made), UUID(tenant)


async def _save_place(redis: Redis, duty: Duty, place: Position | None) -> None:
    async with translated():
        if place is None:
            await redis.delete(upkeep_key(duty.value))
        else:
            made, tenant = place
            await redis.set(upkeep_key(duty.value), f"{made.isoformat()} {tenant}", ex=_PLACE_KEPT_S)
