"""The way to Postgres: every transaction runs as the service role and, as a rule, for one tenant.

The role and the tenant are set with `set_config(..., is_local => true)`, so they end with the transaction and no pooled
connection carries them on (PostgreSQL manual, "System Administration Functions"; this also holds behind a
transaction-pooling proxy).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import make_url, text
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from storage.errors import ServerUnavailable, UnsafeRole
from storage.settings import Settings

CONNECT_TIMEOUT_S = 5
STATEMENT_TIMEOUT_MS = 10_000
ANSWER_TIMEOUT_S = 12.0

Outcome = TypeVar("Outcome")


class Database:
    """A pool of connections that hands out transactions; `close` is idempotent."""

    def __init__(self, url: str, role: str, *, operator_role: str = "", pool_size: int = 5) -> None:
        self._role = role
        self._operator_role = operator_role
        self._engine = _engine(url, pool_size)

    @classmethod
    def for_service(cls, settings: Settings, *, pool_size: int = 5) -> Database:
        """The database as the services see it: row-level security applies."""
        return cls(
            settings.database_url, settings.service_role, operator_role=settings.operator_role, pool_size=pool_size
        )

    @classmethod
    def for_owner(cls, settings: Settings) -> Database:
        """The database as its owner sees it, for operator commands on tenants and keys."""
        return cls(settings.owner_url, "", pool_size=1)

    async def close(self) -> None:
        """Return every connection."""
        await self._engine.dispose()

    @asynccontextmanager
    async def transaction(
        self, *, tenant: UUID | None = None, key_hash: bytes = b"", operator: bool = False
    ) -> AsyncIterator[AsyncConnection]:
        """A transaction in which only `tenant`'s rows exist (and the key row with this hash).

        As the operator it sees every tenant and key as well, and no consent, voice or data key at all.

        Raises ServerUnavailable when Postgres cannot be reached or stops answering.
        """
        try:
            async with self._engine.begin() as connection:
                await self._enter(connection, tenant, key_hash, self._operator_role if operator else self._role)
                yield connection
        except (OperationalError, PoolTimeoutError) as error:
            raise ServerUnavailable("Postgres", _reason(error)) from error
        except DBAPIError as error:
            if error.connection_invalidated:
                raise ServerUnavailable("Postgres", _reason(error)) from error
            raise

    async def ping(self) -> None:
        """Raises ServerUnavailable unless Postgres answers a query within the connect timeout."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S), self.transaction() as connection:
                await connection.execute(text("SELECT 1"))
        except TimeoutError as error:
            raise ServerUnavailable("Postgres", "no answer in time") from error

    async def check_role(self) -> None:
        """Raises UnsafeRole when the service role would see through row-level security, or be the operator unasked."""
        query = text(
            "SELECT r.rolname, r.rolsuper OR r.rolbypassrls OR EXISTS (SELECT FROM pg_roles o"
            " WHERE o.rolname = :operator AND o.oid <> r.oid AND pg_has_role(r.oid, o.oid, 'USAGE'))"
            " FROM pg_roles r WHERE r.rolname = current_user"
        )
        async with self.transaction() as connection:
            role, unsafe = (await connection.execute(query, {"operator": self._operator_role})).one()
        if unsafe:
            raise UnsafeRole(role)

    async def _enter(self, connection: AsyncConnection, tenant: UUID | None, key_hash: bytes, role: str) -> None:
        named = "" if tenant is None else str(tenant)
        parameters = {"tenant": named, "key_hash": key_hash.hex(), "role": role or "none"}
        await connection.execute(
            text(
                "SELECT set_config('role', :role, true), set_config('app.tenant', :tenant, true),"
                " set_config('app.key_hash', :key_hash, true)"
            ),
            parameters,
        )


async def bounded(work: Coroutine[Any, Any, Outcome], within_s: float = ANSWER_TIMEOUT_S) -> Outcome:
    """The outcome of some work with Postgres, or ServerUnavailable after `within_s`.

    The server bounds its statements itself, but not when it is stopped or cut off. Work that hangs is cancelled and
    left behind, since ending it may hang for as long; the pool bounds how much of it there can be.
    """
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=within_s)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if done:
        return task.result()
    task.cancel()
    raise ServerUnavailable("Postgres", "no answer in time")


def _engine(url: str, pool_size: int) -> AsyncEngine:
    return create_async_engine(
        make_url(url).set(drivername="postgresql+psycopg"),
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=CONNECT_TIMEOUT_S,
        pool_pre_ping=True,
        hide_parameters=True,
        connect_args={
            "connect_timeout": CONNECT_TIMEOUT_S,
            # A plan for any tenant and any limit reads all of a large tenant's voices for its first page (320 ms for 5
            # among 100,000); planning anew costs half a millisecond.
            "options": f"-c statement_timeout={STATEMENT_TIMEOUT_MS} -c plan_cache_mode=force_custom_plan",
        },
    )


def _reason(error: SQLAlchemyError) -> str:
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return str(cause).strip().splitlines()[0]
