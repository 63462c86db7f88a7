"""Carries out deletions: store by store, each step safe to repeat, until every store is empty and a receipt says so.

A step in Postgres and its report are one transaction; a step elsewhere is reported after it was done. So whatever dies
between two steps, the next attempt goes on where the record says, and what it repeats finds nothing left.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from uuid import UUID

import structlog
from redis.asyncio import Redis
from sqlalchemy import func, update
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.database import Database, bounded
from storage.encryption.keyring import Keyring, destroy_tenant_keys
from storage.errors import ServerUnavailable, StorageError
from storage.evidence.audit import Act, Detail, append, read_head
from storage.evidence.deletions import (
    Deletion,
    ObjectKind,
    Outcome,
    StoreReport,
    begin_attempt,
    complete,
    lock_deletion,
    note_store,
    postpone,
)
from storage.evidence.family_stores import CONSENT_STORES, TENANT_STORES
from storage.evidence.receipts import build_receipt, sign_receipt
from storage.evidence.scenes import (
    Rows,
    Scene,
    Store,
    find_obstacle,
    is_settled,
    report_failure,
    report_progress,
)
from storage.evidence.signing import load_signer
from storage.evidence.voice_stores import VOICE_STORES
from storage.states import DeletionState, TenantState
from storage.tables import tenants

log = structlog.get_logger()

WITHIN_S = 6.0
"""How long an attempt takes at most, give or take what was begun."""
STATEMENT_WITHIN_S = 3.0
LEASE_S = 10.0
"""How long after an attempt should have ended it is taken for dead."""
FIRST_BACKOFF_S = 2.0
LONGEST_BACKOFF_S = 300.0
LONGEST_WAIT_S = 10.0
"""When nothing failed and something only has to end, or there was more than one attempt has time for."""
STORES: Mapping[ObjectKind, tuple[Store, ...]] = {
    ObjectKind.VOICE: VOICE_STORES,
    ObjectKind.CONSENT: CONSENT_STORES,
    ObjectKind.TENANT: TENANT_STORES,
}
RECEIPT = "receipt"
"""Under this name stands why a deletion that is done everywhere has no receipt yet."""
_ORIGIN = "service"
_POSTGRES = "Postgres"


class Erasure:
    """Attempts deletions; any number at once, also the same one."""

    def __init__(self, database: Database, redis: Redis, keyring: Keyring) -> None:
        self._database = database
        self._redis = redis
        self._keyring = keyring

    async def run(self, tenant: UUID, deletion_id: UUID, within_s: float = WITHIN_S) -> Deletion:
        """Make one attempt at a deletion that is on record; gives it as it stands afterwards.

        A server that is away makes it `partial`, with the reason at each store that it concerns. Raises
        ServerUnavailable only when the record itself cannot be read; it stays, and is due again.
        """
        deadline = time.monotonic() + within_s
        deletion = await bounded(self._begin(tenant, deletion_id, within_s), STATEMENT_WITHIN_S)
        if deletion.state is DeletionState.DONE:
            return deletion
        scene = Scene(
            self._database,
            self._redis,
            tenant,
            deletion,
            run_child=lambda child: self.run(tenant, child, min(WITHIN_S, max(0.1, deadline - time.monotonic()))),
            deadline=deadline,
        )
        reports = dict(deletion.stores)
        away: dict[str, str] = {}
        for store in STORES[deletion.object_kind]:
            if not is_settled(store, reports):
                reports[store.name] = await self._attempt(store, replace(scene, reports=dict(reports)), away)
        try:
            return await bounded(self._conclude(tenant, deletion), STATEMENT_WITHIN_S)
        except ServerUnavailable as error:
            log.warning("a deletion goes on later", deletion=str(deletion_id), reason=str(error))
            return replace(deletion, state=DeletionState.PARTIAL, stores=reports)

    async def _begin(self, tenant: UUID, deletion_id: UUID, within_s: float) -> Deletion:
        until = datetime.now(UTC) + timedelta(seconds=within_s + LEASE_S)
        async with self._database.transaction(tenant=tenant) as connection:
            deletion = await begin_attempt(connection, tenant, deletion_id, until)
        if deletion is None:
            raise LookupError(f"the tenant has no deletion {deletion_id}")
        return deletion

    async def _attempt(self, store: Store, scene: Scene, away: dict[str, str]) -> StoreReport:
        """One attempt at one store; `away` keeps the servers that did not answer, which are not asked again."""
        earlier = scene.reports.get(store.name)
        server = _POSTGRES if isinstance(store, Rows) else "Redis"
        if obstacle := find_obstacle(store, scene.reports):
            return await self._note(scene, store, _wait(f"comes after {obstacle}", earlier), away)
        if not (store.at_once or scene.left_s()):
            return await self._note(scene, store, _wait("the next attempt goes on here", earlier), away)
        if server in away:
            return await self._note(scene, store, report_failure(away[server], earlier), away)
        try:
            if isinstance(store, Rows):
                return await bounded(self._erase_rows(store, scene), max(scene.left_s(), STATEMENT_WITHIN_S))
            async with asyncio.timeout(min(store.bound_s, scene.left_s() + STATEMENT_WITHIN_S)):
                progress = await store.erase(scene)
            return await self._note(scene, store, report_progress(progress, earlier), away)
        except ServerUnavailable as error:
            away[error.server] = f"{error.server} does not answer"
            reason = away[error.server]
        except TimeoutError:
            reason = away[server] = f"{server} does not answer in time"
        except StorageError as error:
            reason = str(error)
        except Exception as error:
            log.error("a store could not be emptied", store=store.name, exc_info=error)
            reason = f"an unexpected {type(error).__name__}; the log has more"
        log.warning("a store is not empty yet", store=store.name, deletion=str(scene.deletion.id), reason=reason)
        return await self._note(scene, store, report_failure(reason, earlier), away)

    async def _erase_rows(self, store: Rows, scene: Scene) -> StoreReport:
        """The step and its report, both or neither."""
        async with self._database.transaction(tenant=scene.tenant) as connection:
            locked = await lock_deletion(connection, scene.tenant, scene.deletion.id)
            progress = await store.erase(connection, replace(scene, reports=locked.stores))
            report = report_progress(progress, locked.stores.get(store.name))
            await note_store(connection, scene.deletion.id, store.name, report)
        return report

    async def _note(self, scene: Scene, store: Store, report: StoreReport, away: dict[str, str]) -> StoreReport:
        """Keep the report; when Postgres is away it is lost, and the step repeated."""
        if _POSTGRES in away:
            return report
        try:
            await bounded(self._keep(scene.tenant, scene.deletion.id, store.name, report), STATEMENT_WITHIN_S)
        except ServerUnavailable as error:
            away[error.server] = f"{error.server} does not answer"
            log.warning("a report could not be kept", store=store.name, deletion=str(scene.deletion.id))
        return report

    async def _keep(self, tenant: UUID, deletion_id: UUID, store: str, report: StoreReport) -> None:
        async with self._database.transaction(tenant=tenant) as connection:
            await note_store(connection, deletion_id, store, report)

    async def _conclude(self, tenant: UUID, deletion: Deletion) -> Deletion:
        """Sign the receipt if every store is empty, else say when the next attempt is due."""
        try:
            async with self._database.transaction(tenant=tenant) as connection:
                return await self._finish(connection, tenant, deletion.id)
        except StorageError as error:
            if isinstance(error, ServerUnavailable) and error.server == _POSTGRES:
                raise
            log.warning("a deletion has no receipt yet", deletion=str(deletion.id), reason=str(error))
            report = StoreReport(Outcome.FAILED, 0, datetime.now(UTC), "the receipt could not be signed")
        async with self._database.transaction(tenant=tenant) as connection:
            await note_store(connection, deletion.id, RECEIPT, report)
            return await _postpone(connection, await lock_deletion(connection, tenant, deletion.id))

    async def _finish(self, connection: AsyncConnection, tenant: UUID, deletion_id: UUID) -> Deletion:
        locked = await lock_deletion(connection, tenant, deletion_id)
        if locked.state is DeletionState.DONE:
            return locked
        stores = {store.name: locked.stores.get(store.name) for store in STORES[locked.object_kind]}
        found = {name: report for name, report in stores.items() if report is not None}
        if len(found) < len(stores) or any(report.outcome is not Outcome.DONE for report in found.values()):
            return await _postpone(connection, locked)
        signer = await load_signer(connection, self._keyring)
        if locked.object_kind is ObjectKind.TENANT:
            await _close_tenant(connection, tenant)
        await append(connection, tenant, _deleted(locked))
        head, at = await read_head(connection, tenant), datetime.now(UTC)
        receipt = build_receipt(
            replace(locked, stores=found),
            tenant,
            at,
            destroyed_keys=[locked.object_id],
            release=version("timbrelay"),
            head=head,
        )
        await complete(connection, locked, sign_receipt(signer, receipt), found, at)
        log.info("deleted", kind=str(locked.object_kind), object=str(locked.object_id), attempts=locked.attempts)
        return await lock_deletion(connection, tenant, deletion_id)


def choose_backoff(attempts: int, stores: Mapping[str, StoreReport]) -> float:
    """Seconds until the next attempt: doubling, and for longer where something fails again and again."""
    failed = any(report.outcome is Outcome.FAILED for report in stores.values())
    longest = LONGEST_BACKOFF_S if failed else LONGEST_WAIT_S
    return min(longest, FIRST_BACKOFF_S * 2.0 ** min(max(attempts - 1, 0), 16))


async def _postpone(connection: AsyncConnection, deletion: Deletion) -> Deletion:
    wait = choose_backoff(deletion.attempts, deletion.stores)
    await postpone(connection, deletion, datetime.now(UTC) + timedelta(seconds=wait))
    return await lock_deletion(connection, deletion.tenant_id, deletion.id)


async def _close_tenant(connection: AsyncConnection, tenant: UUID) -> None:
    """The last of a tenant: its name is free again, and a key that was made while it was going goes, too."""
    await destroy_tenant_keys(connection, tenant)
    values = {"state": TenantState.DELETED, "name": f"deleted {tenant}", "deleted_at": func.now()}
    await connection.execute(update(tenants).where(tenants.c.id == tenant).values(**values))


def _wait(reason: str, earlier: StoreReport | None) -> StoreReport:
    return StoreReport(Outcome.PENDING, earlier.count if earlier else 0, datetime.now(UTC), reason)


def _deleted(deletion: Deletion) -> Act:
    kind = deletion.object_kind
    detail: Detail = {"deletion": str(deletion.id), "reason": str(deletion.reason), "attempts": deletion.attempts}
    return Act(deletion.requested_by, f"{kind}.deleted", kind, str(deletion.object_id), _ORIGIN, detail)
