"""Suspended tenants: what people's rights need goes on, and nothing else."""

from __future__ import annotations

import pytest
from websockets.exceptions import InvalidStatus

from relay.api.problems import TITLES
from storage.database import Database
from storage.states import TenantState
from storage.tenancy.tenants import change_tenant
from tests.conftest import MakeTenant, MakeVoice, RunningStack, Tenant
from tests.relay.api.conftest import EMBEDDING, Grant, Http, check_problem, knock
from tests.relay.api.test_doors import OPERATIONS
from tests.relay.conftest import open_socket

ONE_RELAY = True
CODE = "tenant_suspended"
MAY = {
    ("DELETE", "/v1/voices/{voice}"),
    ("POST", "/v1/consents/{consent}/withdraw"),
    ("DELETE", "/v1/admin/keys/{key}"),
}
"""Beside everything that is only read."""


async def _set_state(database: Database, tenant: Tenant, state: TenantState) -> None:
    async with database.transaction(operator=True) as connection:
        await change_tenant(connection, tenant.id, state=state)


async def test_every_route_of_a_suspended_tenant_is_open_or_says_why_not(
    stack: RunningStack, acme: Tenant, database: Database
) -> None:
    """Reading, deleting voices, withdrawing and revoking; 403 that names the state and whom to ask for all else."""
    await _set_state(database, acme, TenantState.SUSPENDED)
    refused = 0
    async with knock(stack, acme.key) as client:
        for method, template, path, scopes in OPERATIONS:
            if not scopes - {"operator"}:
                continue
            answer = await client.request(method, path)
            if method == "GET" or (method, template) in MAY:
                assert answer.status_code in (200, 404), (method, path, answer.text)
                continue
            problem = check_problem(answer, 403, CODE)
            assert "suspended" in problem["detail"] and "operator" in problem["detail"]
            assert problem["title"] == TITLES[CODE] and not problem["retryable"]
            refused += 1
    assert refused == 12


async def test_a_person_of_a_suspended_tenant_gets_an_answer(
    http: Http, acme: Tenant, database: Database, grant: Grant, make_voice: MakeVoice
) -> None:
    """A copy of what is held, the deletion of a voice, the withdrawal of a consent; then the tenant is let in again."""
    consent, voice = await grant(), await make_voice(acme.id, embedding=EMBEDDING)
    await _set_state(database, acme, TenantState.SUSPENDED)
    exported = await http.get(f"/v1/voices/{voice}/export")
    assert (exported.status_code, exported.content[:2]) == (200, b"PK")
    deleted = await http.delete(f"/v1/voices/{voice}")
    assert deleted.status_code in (200, 202), deleted.text
    withdrawn = await http.post(f"/v1/consents/{consent}/withdraw")
    assert withdrawn.status_code in (200, 202), withdrawn.text
    assert withdrawn.json()["consent"]["state"] == "withdrawn"
    assert (await http.get(f"/v1/deletions/{deleted.json()['deletion']['id']}")).status_code == 200
    await _set_state(database, acme, TenantState.ACTIVE)
    await grant()


async def test_a_suspended_tenants_key_is_revoked(
    stack: RunningStack, http: Http, acme: Tenant, make_tenant: MakeTenant, database: Database
) -> None:
    """By its administrator: a key that got lost need not wait until the tenant is let in again."""
    lost = await make_tenant("acme", scopes=("enrol",))
    await _set_state(database, acme, TenantState.SUSPENDED)
    assert (await http.delete(f"/v1/admin/keys/{lost.key_id}")).status_code == 204
    async with knock(stack, lost.key) as client:
        check_problem(await client.get("/v1/voices"), 401, "unauthorized", "Authorization")


async def test_a_suspended_tenant_opens_no_socket(stack: RunningStack, acme: Tenant, database: Database) -> None:
    """The door of the native protocol says the same."""
    await _set_state(database, acme, TenantState.SUSPENDED)
    with pytest.raises(InvalidStatus) as caught:
        async with open_socket(stack, acme.key):
            pass
    assert caught.value.response.status_code == 403
    assert CODE.encode() in (caught.value.response.body or b"")
