"""worker.upkeep.rounds, tidying and checkpoints: the round through the tenants, and what is small in it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

import psycopg
import pytest
from sqlalchemy import func, select, text, update

from storage.cold_jobs import Duty
from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.errors import ServerUnavailable
from storage.evidence.audit import Act, append
from storage.settings import Settings
from storage.tables import audit_checkpoints, idempotency_keys, voice_versions
from storage.tenancy.idempotency import begin
from storage.tenancy.tenants import Tenant
from storage.voices.versions import fail_enrolment
from tests.conftest import MakeTenant, MakeVoice
from worker.upkeep.checkpoints import sign_heads
from worker.upkeep.rounds import Tools, visit_tenants
from worker.upkeep.tidying import tidy_up

NAMES = ("acme", "umbrella", "initech", "hooli", "globex")


class Visits:
    """Visits that say whom they met, and do to some what a fault would."""

    def __init__(self, broken: Iterable[str] = (), error: type[Exception] = ValueError) -> None:
        self.seen: list[str] = []
        self._broken = broken
        self._error = error

    async def __call__(self, tools: Tools, tenant: Tenant) -> int:
        self.seen.append(tenant.name)
        await asyncio.sleep(0)
        if tenant.name in self._broken:
            raise self._error("Postgres", "gone")
        return 1


async def test_a_round_that_is_over_goes_on_where_it_ended(tools: Tools, make_tenant: MakeTenant) -> None:
    """Every tenant has its turn although no round comes further than one."""
    for name in NAMES:
        await make_tenant(name)
    visits = Visits()
    short = replace(tools, ends_at=time.monotonic())
    for _ in range(2 * len(NAMES)):
        await visit_tenants(short, Duty.TIDYING, visits)
    assert visits.seen[: len(NAMES)] == list(reversed(NAMES))
    assert set(visits.seen[len(NAMES) :]) == set(NAMES)


async def test_a_fault_in_one_tenant_keeps_nothing_from_the_others(tools: Tools, make_tenant: MakeTenant) -> None:
    """It is logged; a server that is away ends the round."""
    for name in NAMES:
        await make_tenant(name)
    visits = Visits(broken=["initech"])
    assert await visit_tenants(tools, Duty.TIDYING, visits) == len(NAMES) - 1
    assert set(visits.seen) == set(NAMES)
    away = Visits(broken=["initech"], error=ServerUnavailable)
    with pytest.raises(ServerUnavailable):
        await visit_tenants(tools, Duty.TIDYING, away)
    assert away.seen[-1] == "initech"


async def test_of_two_at_one_duty_one_does_nothing(tools: Tools, make_tenant: MakeTenant) -> None:
    """Two beats send each task twice; another duty is not held up."""
    await make_tenant("acme")
    inside, leave = asyncio.Event(), asyncio.Event()

    async def wait(_: Tools, __: Tenant) -> int:
        inside.set()
        await leave.wait()
        return 1

    visits = Visits()
    first = asyncio.create_task(visit_tenants(tools, Duty.TIDYING, wait))
    await inside.wait()
    assert await visit_tenants(tools, Duty.TIDYING, visits) == 0
    assert await visit_tenants(tools, Duty.RETENTION, visits) == 1
    leave.set()
    assert await first == 1
    assert await visit_tenants(tools, Duty.TIDYING, visits) == 1


async def test_what_needs_no_keeping_goes(
    tools: Tools, database: Database, keyring: Keyring, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """Idempotency keys whose time is over, also of requests that never ended, and uploads that outlived their use."""
    tenant = (await make_tenant("acme")).id
    voice = await make_voice(tenant)
    async with database.transaction(tenant=tenant) as connection:
        for key in ("old", "new"):
            await begin(connection, keyring, tenant, key, b"request")
        over = update(idempotency_keys).where(idempotency_keys.c.key == "old")
        await connection.execute(over.values(expires_at=func.now() - text("interval '1 second'")))
        await fail_enrolment(connection, tenant, voice, 1, code="recording_silent", message="silent")
        await connection.execute(update(voice_versions).values(upload=b"left over"))
    assert await tidy_up(tools) == 2
    async with database.transaction(tenant=tenant) as connection:
        assert (await connection.execute(select(idempotency_keys.c.key))).scalars().all() == ["new"]
        assert (await connection.execute(select(voice_versions.c.upload))).scalars().all() == [None]


async def test_an_upload_that_waits_is_kept(
    tools: Tools, database: Database, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """Only what has ended is wiped."""
    tenant = (await make_tenant("acme")).id
    await make_voice(tenant)
    assert await tidy_up(tools) == 0
    async with database.transaction(tenant=tenant) as connection:
        assert (await connection.execute(select(voice_versions.c.upload))).scalar() is not None


async def test_heads_are_signed_and_a_changed_log_is_noticed(
    tools: Tools, settings: Settings, database: Database, make_tenant: MakeTenant
) -> None:
    """A log that is as it was written is sound; one that its owner has changed is counted."""
    tenants: list[UUID] = [(await make_tenant(name)).id for name in ("acme", "umbrella")]
    for tenant in tenants:
        async with database.transaction(tenant=tenant) as connection:
            await append(
                connection, tenant, *(Act("system:test", "voice.created", "voice", "x", "cli") for _ in range(3))
            )
    assert await sign_heads(tools) == 0
    for tenant in tenants:
        async with database.transaction(tenant=tenant) as connection:
            assert (await connection.execute(select(audit_checkpoints.c.sequence))).scalars().all() == [3]
    _forge(settings, tenants[0])
    assert await sign_heads(tools) == 1


def _forge(settings: Settings, tenant: UUID) -> None:
    with psycopg.connect(settings.owner_url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("ALTER TABLE audit_log DISABLE TRIGGER append_only")
        connection.execute("ALTER TABLE audit_log NO FORCE ROW LEVEL SECURITY")
        changed = "UPDATE audit_log SET actor = 'nobody' WHERE tenant_id = %s AND sequence = 3"
        assert connection.execute(changed, (tenant,)).rowcount == 1
        connection.execute("ALTER TABLE audit_log FORCE ROW LEVEL SECURITY")
        connection.execute("ALTER TABLE audit_log ENABLE TRIGGER append_only")
