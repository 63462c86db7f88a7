"""What needs no keeping: idempotency keys whose time is over, uploads of enrolments that ended."""

from __future__ import annotations

import structlog

from storage.cold_jobs import Duty
from storage.tenancy.idempotency import sweep
from storage.tenancy.tenants import Tenant
from storage.voices.enrolments import wipe_uploads
from worker.upkeep.rounds import Tools, visit_tenants

log = structlog.get_logger()


async def tidy_up(tools: Tools) -> int:
    """Remove it; how much there was. Raises ServerUnavailable."""
    return await visit_tenants(tools, Duty.TIDYING, _tidy_up_of)


async def _tidy_up_of(tools: Tools, tenant: Tenant) -> int:
    async with tools.database.transaction(tenant=tenant.id) as connection:
        keys = await sweep(connection, tenant.id)
        uploads = await wipe_uploads(connection, tenant.id)
    if uploads:
        log.error("uploads had outlived their enrolments", tenant=str(tenant.id), count=uploads)
    return keys + uploads
