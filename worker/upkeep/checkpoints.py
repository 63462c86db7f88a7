"""Signed heads of the audit logs, written again and again, and the alarm when a log is not what was signed."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import structlog

from storage.cold_jobs import Duty
from storage.evidence.audit import PLATFORM
from storage.evidence.checkpoints import list_closed, write_checkpoint
from storage.tenancy.tenants import Tenant
from worker.upkeep.rounds import Tools, visit_tenants

CLOSED_FOR = timedelta(days=7)

log = structlog.get_logger()


async def sign_heads(tools: Tools) -> int:
    """Sign the head of every log that has grown; how many logs are not sound. Raises what signing raises."""
    broken = await _sign(tools, PLATFORM)
    # The round does not visit them any more, and the end of their logs says who deleted them.
    for tenant in await list_closed(tools.database, await tools.read_time() - CLOSED_FOR):
        broken += await _sign(tools, tenant)
    return broken + await visit_tenants(tools, Duty.CHECKPOINTS, _sign_of)


async def _sign_of(tools: Tools, tenant: Tenant) -> int:
    return await _sign(tools, tenant.id)


async def _sign(tools: Tools, chain: UUID) -> int:
    async with tools.database.transaction(tenant=chain) as connection:
        verdict = await write_checkpoint(connection, tools.keyring, chain)
    if not verdict.sound:
        log.error("an audit log was changed: run `timbrelay audit verify`", tenant=str(chain))
    return int(not verdict.sound)
