"""Work that nobody does any more: its message was lost, or never sent, and what it was about is still waiting."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from storage.cold_jobs import Duty, send_deletion, send_enrolment
from storage.evidence.deletions import due_deletions
from storage.streams.tries import may_send_again
from storage.tenancy.tenants import Tenant
from storage.voices.versions import list_enrolments_under_way
from worker.upkeep.rounds import Tools, visit_tenants

BATCH = 100
PATIENCE = timedelta(seconds=60)
"""How long a version waits before its message is taken for lost; an enrolment takes a second."""

ENROLMENT_AGAIN_S = 300
DELETION_AGAIN_S = 25
"""For so long neither is sent once more: its message may be waiting behind others."""


async def send_again(tools: Tools) -> int:
    """Send what is waiting once more: enrolments that nobody has claimed, deletions that are due; how many.

    Raises ServerUnavailable.
    """
    return await visit_tenants(tools, Duty.LOST_WORK, _send_again_of)


async def _send_again_of(tools: Tools, tenant: Tenant) -> int:
    now = await tools.read_time()
    async with tools.database.transaction(tenant=tenant.id) as connection:
        waiting = await list_enrolments_under_way(connection, tenant.id, now - PATIENCE, BATCH)
        due = await due_deletions(connection, tenant.id, now, BATCH)
    done = 0
    for voice_id, version in waiting:
        if await may_send_again(tools.redis, f"{voice_id}:{version}", ENROLMENT_AGAIN_S):
            await asyncio.to_thread(send_enrolment, tools.celery, tenant.id, voice_id, version)
            done += 1
    for deletion_id in due:
        if await may_send_again(tools.redis, str(deletion_id), DELETION_AGAIN_S):
            await asyncio.to_thread(send_deletion, tools.celery, tenant.id, deletion_id)
            done += 1
    return done
