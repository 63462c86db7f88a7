"""An operation's times: as its caller sees it, and as Postgres itself says; and the plans that Postgres chose."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.database import Database
from timbrelay.benchmark.storage.operations import Operation

CALLS = 500
EXPLAINED = 100
WARM_UP = 50


@dataclass(frozen=True, slots=True)
class Spread:
    """Milliseconds."""

    p50: float
    p95: float
    p99: float

    @classmethod
    def of(cls, values_ms: list[float]) -> Spread:
        """From at least two values."""
        cuts = statistics.quantiles(values_ms, n=100, method="inclusive")
        return cls(cuts[49], cuts[94], cuts[98])


@dataclass(frozen=True, slots=True)
class Measured:
    """An operation and its times."""

    name: str
    limit_ms: float
    whole: bool
    call: Spread
    """From the call to its answer: round trips, pool, decryption."""
    database: Spread
    """Planning and execution of its queries, by EXPLAIN ANALYZE."""
    plans: tuple[str, ...]
    """The plan of each of its queries, as text."""

    @property
    def held(self) -> bool:
        """Whether the time that counts is within the limit."""
        return (self.call if self.whole else self.database).p95 < self.limit_ms

    @property
    def scans(self) -> bool:
        """Whether Postgres reads a whole table for it."""
        return any("Seq Scan" in plan for plan in self.plans)


@dataclass(frozen=True, slots=True)
class _Query:
    statement: str
    parameters: Any
    settings: dict[str, str]


async def measure(database: Database, operation: Operation) -> Measured:
    """Measure one operation; first without its being watched, then with its queries explained."""
    for _ in range(WARM_UP):
        await operation.act()
    calls = []
    for _ in range(CALLS):
        started = time.perf_counter()
        await operation.act()
        calls.append((time.perf_counter() - started) * 1000)
    times, plans = [], tuple[str, ...]()
    for _ in range(EXPLAINED):
        with _noting_queries() as queries:
            await operation.act()
        spent, plans = await _explain(database, queries)
        times.append(spent)
    return Measured(operation.name, operation.limit_ms, operation.whole, Spread.of(calls), Spread.of(times), plans)


async def _explain(database: Database, queries: list[_Query]) -> tuple[float, tuple[str, ...]]:
    """Milliseconds in the database for all queries of one act, and their plans."""
    spent, plans = 0.0, []
    async with database.transaction() as connection:
        for query in queries:
            await _take_on(connection, query.settings)
            timed = await _ask(connection, "EXPLAIN (ANALYZE, FORMAT JSON) ", query)
            plan = timed[0] if isinstance(timed, list) else json.loads(timed)[0]
            spent += plan["Planning Time"] + plan["Execution Time"]
            rows = await connection.exec_driver_sql("EXPLAIN (COSTS OFF) " + query.statement, query.parameters)
            plans.append("\n".join(row[0] for row in rows))
    return spent, tuple(plans)


async def _ask(connection: AsyncConnection, prefix: str, query: _Query) -> Any:
    return (await connection.exec_driver_sql(prefix + query.statement, query.parameters)).scalar()


async def _take_on(connection: AsyncConnection, settings: dict[str, str]) -> None:
    """The role and the tenant that the query was made with: the policies are part of its plan."""
    for name, value in settings.items():
        await connection.exec_driver_sql("SELECT set_config(%(name)s, %(value)s, true)", {"name": name, "value": value})


@contextmanager
def _noting_queries() -> Iterator[list[_Query]]:
    """The queries that are made meanwhile, each with the role and tenant of its transaction."""
    queries: list[_Query] = []
    settings: dict[str, str] = {}

    def note(_: Any, __: Any, statement: str, parameters: Any, ___: Any, ____: Any) -> None:
        if "set_config" in statement:
            settings.update(
                {"role": parameters["role"], "app.tenant": parameters["tenant"], "app.key_hash": parameters["key_hash"]}
            )
        elif statement.lstrip().upper().startswith("SELECT"):
            queries.append(_Query(statement, parameters, dict(settings)))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield queries
    finally:
        event.remove(Engine, "before_cursor_execute", note)
