"""worker.upkeep.lost_work."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from storage.cold_jobs import DELETE, ENROL, KEY_PREFIX, QUEUE
from storage.database import Database
from storage.evidence.deletions import ObjectKind, Reason, Request, request_deletion
from storage.states import TenantState
from storage.tenancy.tenants import change_tenant
from storage.voices.versions import claim_enrolment
from tests.conftest import MakeTenant, MakeVoice
from worker.upkeep.lost_work import PATIENCE, send_again
from worker.upkeep.rounds import Tools


async def read_queue(tools: Tools) -> list[tuple[str, list[Any]]]:
    """The names and arguments of the messages that wait."""
    raw: Any = await tools.redis.lrange(f"{KEY_PREFIX}{QUEUE}", 0, -1)
    messages = [json.loads(message) for message in raw]
    return [(found["headers"]["task"], json.loads(base64.b64decode(found["body"]))[0]) for found in messages]


def later(tools: Tools, by: timedelta) -> Tools:
    return replace(tools, clock=lambda: datetime.now(UTC) + by)


async def test_an_enrolment_whose_message_was_lost_is_sent_again(
    tools: Tools, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """Not before it has waited for a minute, and then once, since its message may wait behind others; by ids alone."""
    tenant = (await make_tenant("acme")).id
    voice = await make_voice(tenant)
    await make_voice(tenant, embedding=bytes(1024))
    assert await send_again(tools) == 0
    overdue = later(tools, PATIENCE + timedelta(seconds=1))
    assert [await send_again(overdue) for _ in range(3)] == [1, 0, 0]
    assert await read_queue(tools) == [(ENROL, [str(tenant), str(voice), 1])]


async def test_an_enrolment_that_somebody_works_on_is_not_sent_again(
    tools: Tools, database: Database, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """As long as it is claimed it is not lost."""
    tenant = (await make_tenant("acme")).id
    voice = await make_voice(tenant)
    async with database.transaction(tenant=tenant) as connection:
        assert await claim_enrolment(connection, tenant, voice, 1, 3600)
    assert await send_again(later(tools, PATIENCE + timedelta(seconds=1))) == 0


async def test_a_deletion_that_is_due_is_attempted_again(
    tools: Tools, database: Database, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """Whoever asked for it may have died after it was acknowledged; also in a tenant that is being deleted itself."""
    sent: list[tuple[str, list[str | UUID]]] = []
    for name in ("acme", "umbrella"):
        tenant = (await make_tenant(name)).id
        request = Request(ObjectKind.VOICE, await make_voice(tenant), Reason.REQUESTED, "system:test", "cli")
        async with database.transaction(tenant=tenant) as connection:
            deletion = await request_deletion(connection, tenant, request)
        assert deletion is not None
        sent.append((DELETE, [str(tenant), str(deletion.id)]))
    async with database.transaction(operator=True) as connection:
        await change_tenant(connection, tenant, state=TenantState.DELETING)
    assert await send_again(later(tools, timedelta(seconds=1))) == 2
    assert sorted(await read_queue(tools)) == sorted(sent)
