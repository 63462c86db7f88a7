"""A tenant's transactions for plain code: a task that computes for seconds between them.

Its computing must not sit inside an event loop: a time limit is an exception that Celery raises wherever the main
thread is, and plain code unwinds from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Self, TypeVar
from uuid import UUID

from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.database import Database, bounded
from storage.redis import connect
from storage.settings import Settings

Outcome = TypeVar("Outcome")


class Transactions:
    """One connection to Postgres and one to Redis, for as long as it is entered."""

    def __init__(self, settings: Settings, tenant: UUID) -> None:
        self._settings = settings
        self._tenant = tenant

    def __enter__(self) -> Self:
        self._runner = asyncio.Runner()
        self._database = Database.for_service(self._settings, pool_size=1)
        self._redis = connect(self._settings.redis_url, connections=1)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._runner.run(self._close())
        finally:
            self._runner.close()

    def run(self, work: Callable[[AsyncConnection], Awaitable[Outcome]]) -> Outcome:
        """What some work in a transaction of the tenant gives; raises what the work raises, and ServerUnavailable."""
        return self._runner.run(bounded(self._transact(work)))

    def ask(self, question: Callable[[Redis], Awaitable[Outcome]]) -> Outcome:
        """What Redis answers; raises ServerUnavailable."""
        return self._runner.run(_await(question(self._redis)))

    async def _transact(self, work: Callable[[AsyncConnection], Awaitable[Outcome]]) -> Outcome:
        async with self._database.transaction(tenant=self._tenant) as connection:
            return await work(connection)

    async def _close(self) -> None:
        await self._redis.aclose()
        await self._database.close()


async def _await(answer: Awaitable[Outcome]) -> Outcome:
    return await answer
