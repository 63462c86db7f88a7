"""What ends by itself: voices that nobody used for as long as the tenant keeps them, consents whose time is over."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from storage.cold_jobs import Duty
from storage.evidence.deletions import Deletion, ObjectKind, Reason, Request, request_deletion
from storage.evidence.erasure import Erasure
from storage.states import TenantState
from storage.tenancy.tenants import Tenant
from storage.voices.consents import list_expired
from storage.voices.voices import find_voice, list_unused
from worker.upkeep.roll_up import roll_up_tenant
from worker.upkeep.rounds import ORIGIN, Tools, visit_tenants

BATCH = 50


async def delete_unused(tools: Tools) -> int:
    """Delete the voices that were last used more than `retention_days` ago; how many. Raises ServerUnavailable."""
    return await visit_tenants(tools, Duty.RETENTION, _delete_unused_of)


async def expire_consents(tools: Tools) -> int:
    """End the consents whose time is over, and delete what was made by them; how many. Raises ServerUnavailable."""
    return await visit_tenants(tools, Duty.CONSENT_EXPIRY, _expire_consents_of)


async def _delete_unused_of(tools: Tools, tenant: Tenant) -> int:
    if tenant.state is TenantState.DELETING:
        return 0
    before = await tools.read_time() - timedelta(days=tenant.retention_days)
    async with tools.database.transaction(tenant=tenant.id) as connection:
        unused = await list_unused(connection, tenant.id, before, BATCH)
    if unused:
        # What was spoken a moment ago counts as well.
        await roll_up_tenant(tools, tenant.id)
    done = 0
    for voice_id in unused:
        async with tools.database.transaction(tenant=tenant.id) as connection:
            voice = await find_voice(connection, tenant.id, voice_id)
            if voice is None or voice.last_used_at >= before:
                continue
            request = Request(ObjectKind.VOICE, voice_id, Reason.UNUSED, "system:retention", ORIGIN)
            deletion = await request_deletion(connection, tenant.id, request)
        done += await _carry_out(tools, tenant.id, deletion)
        if tools.over:
            break
    return done


async def _expire_consents_of(tools: Tools, tenant: Tenant) -> int:
    if tenant.state is TenantState.DELETING:
        return 0
    now = await tools.read_time()
    async with tools.database.transaction(tenant=tenant.id) as connection:
        expired = await list_expired(connection, tenant.id, now, BATCH)
    done = 0
    for consent_id in expired:
        request = Request(ObjectKind.CONSENT, consent_id, Reason.EXPIRED, "system:consent_expiry", ORIGIN)
        async with tools.database.transaction(tenant=tenant.id) as connection:
            deletion = await request_deletion(connection, tenant.id, request)
        done += await _carry_out(tools, tenant.id, deletion)
        if tools.over:
            break
    return done


async def _carry_out(tools: Tools, tenant: UUID, deletion: Deletion | None) -> int:
    """One attempt; what it leaves is found due later on."""
    if deletion is None:
        return 0
    await Erasure(tools.database, tools.redis, tools.keyring).run(tenant, deletion.id)
    return 1
