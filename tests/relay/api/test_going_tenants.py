"""Tenants that are being deleted: their administrators may look, and nothing new comes to be meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.errors import IllegalTransition
from storage.evidence.deletions import ObjectKind, Reason, Request, request_deletion
from storage.tenancy.tenants import find_tenant
from storage.voices.consents import grant_consent
from storage.voices.voices import create_voice
from tests.conftest import STATEMENT, TERMS, Tenant
from tests.relay.api.conftest import CONSENT, RECORDING, Enrol, Grant, Http, check_problem


async def _begin(database: Database, tenant: Tenant) -> None:
    """The deletion is on record, and nobody carries it out yet."""
    request = Request(ObjectKind.TENANT, tenant.id, Reason.REQUESTED, "operator:cli", "cli")
    async with database.transaction(tenant=tenant.id) as connection:
        assert await request_deletion(connection, tenant.id, request)


async def test_nothing_new_is_made_for_a_tenant_that_is_going(
    http: Http, acme: Tenant, database: Database, grant: Grant, enrol: Enrol
) -> None:
    """Consents, voices and recordings are refused, and what goes on can still be looked at."""
    consent = await grant()
    voice = (await enrol(consent=consent))["id"]
    await _begin(database, acme)
    check_problem(await http.post("/v1/consents", json=CONSENT), 409, "wrong_state")
    files: dict[str, Any] = {"recording": RECORDING}
    form = {"name": "new", "consent": consent}
    check_problem(await http.post("/v1/voices", data=form, files=files), 409, "wrong_state")
    check_problem(
        await http.post(f"/v1/voices/{voice}/versions", data={"consent": consent}, files=files), 409, "wrong_state"
    )
    for path in ("/v1/deletions", "/v1/voices", "/v1/admin/audit"):
        assert (await http.get(path)).status_code == 200


@pytest.mark.parametrize("what", ["consent", "voice"])
async def test_what_is_being_made_is_there_before_its_tenants_deletion_begins(
    what: str, acme: Tenant, database: Database, keyring: Keyring
) -> None:
    """A deletion waits for who is about to make something, and finds it; or he is refused."""
    async with database.transaction(tenant=acme.id) as connection:
        consent = (await grant_consent(connection, keyring, acme.id, TERMS, STATEMENT)).id
    async with database.transaction(tenant=acme.id) as connection:
        if what == "consent":
            await grant_consent(connection, keyring, acme.id, TERMS, STATEMENT)
        else:
            await create_voice(connection, keyring, acme.id, name="late", consent=consent, upload=b"upload")
        deleting = asyncio.create_task(_begin(database, acme))
        done, _ = await asyncio.wait({deleting}, timeout=0.3)
        assert not done
    await deleting
    async with database.transaction(tenant=acme.id) as connection:
        found = await find_tenant(connection, acme.id)
        assert found is not None and found.state == "deleting"
        with pytest.raises(IllegalTransition):
            await grant_consent(connection, keyring, acme.id, TERMS, STATEMENT)
