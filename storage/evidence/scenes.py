"""What a step of a deletion works with, and what it tells of itself."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID

from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.database import Database
from storage.evidence.deletions import Deletion, Outcome, StoreReport


@dataclass(frozen=True, slots=True)
class Progress:
    """What one attempt at one store achieved."""

    count: int = 0
    """How many things it removed."""
    waits_for: str = ""
    """What has to end first; empty when the store is empty."""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Scene:
    """One attempt at one deletion."""

    database: Database
    redis: Redis
    tenant: UUID
    deletion: Deletion
    run_child: Callable[[UUID], Awaitable[Deletion]]
    """Carries out another deletion of the same tenant, by its id."""
    deadline: float
    """When the attempt has to end, on the clock of `time.monotonic`."""
    reports: Mapping[str, StoreReport] = field(default_factory=dict)
    """What is known of the stores so far, this attempt's included."""

    @property
    def object_id(self) -> UUID:
        """What is deleted."""
        return self.deletion.object_id

    def left_s(self) -> float:
        """How much time the attempt has left, in seconds; 0 when it is over."""
        return max(0.0, self.deadline - time.monotonic())


@dataclass(frozen=True, slots=True)
class Rows:
    """A store in Postgres: emptied and reported in one transaction."""

    name: str
    erase: Callable[[AsyncConnection, Scene], Awaitable[Progress]]
    needs: tuple[str, ...] = ()
    """The stores that have to be empty first."""
    at_once: bool = False
    """Attempted however little time there is."""


@dataclass(frozen=True, slots=True)
class Traces:
    """A store in Redis or in other processes: emptied, then reported."""

    name: str
    erase: Callable[[Scene], Awaitable[Progress]]
    needs: tuple[str, ...] = ()
    again_until: str = ""
    """Done again with each attempt until that other store is empty."""
    at_once: bool = False
    bound_s: float = 3.0
    """How long one attempt may take."""


Store = Rows | Traces


def is_settled(store: Store, reports: Mapping[str, StoreReport]) -> bool:
    """Whether nothing is left to do for a store."""
    if not _is_done(reports.get(store.name)):
        return False
    return not (isinstance(store, Traces) and store.again_until and not _is_done(reports.get(store.again_until)))


def find_obstacle(store: Store, reports: Mapping[str, StoreReport]) -> str:
    """The first store that has to be empty before this one's turn comes and is not; empty when there is none."""
    return next((name for name in store.needs if not _is_done(reports.get(name))), "")


def report_progress(progress: Progress, earlier: StoreReport | None) -> StoreReport:
    """The report after an attempt; what earlier ones removed is counted on."""
    count = progress.count + (earlier.count if earlier else 0)
    outcome = Outcome.PENDING if progress.waits_for else Outcome.DONE
    at = earlier.at if earlier is not None and earlier.outcome is Outcome.DONE is outcome else datetime.now(UTC)
    return StoreReport(outcome, count, at, progress.waits_for or progress.detail)


def report_failure(reason: str, earlier: StoreReport | None) -> StoreReport:
    """The report after an attempt that failed."""
    return StoreReport(Outcome.FAILED, earlier.count if earlier else 0, datetime.now(UTC), reason)


def _is_done(report: StoreReport | None) -> bool:
    return report is not None and report.outcome is Outcome.DONE
