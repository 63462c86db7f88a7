"""storage.tenancy.tenants and storage.tenancy.limits, over a real Postgres."""

from __future__ import annotations

from uuid import uuid4

import pytest
from pydantic import ValidationError
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from storage.database import Database
from storage.errors import IllegalTransition, InvalidValue, NameTaken
from storage.paging import Page
from storage.states import TENANT_TRANSITIONS, TenantState
from storage.tenancy.limits import Limits
from storage.tenancy.tenants import (
    MAX_RETENTION_DAYS,
    Tenant,
    change_tenant,
    create_tenant,
    find_tenant,
    find_tenant_named,
    list_tenants,
    set_retention,
    walk_tenants,
)
from tests.storage.conftest import Store

ACTIVE, SUSPENDED, DELETING, DELETED = TenantState
WAYS = {ACTIVE: [], SUSPENDED: [SUSPENDED], DELETING: [DELETING], DELETED: [DELETING, DELETED]}


async def _make(database: Database, name: str) -> Tenant:
    async with database.transaction(operator=True) as connection:
        return await create_tenant(connection, name)


async def test_a_tenant_is_made_with_defaults_or_what_it_is_granted(database: Database) -> None:
    """A year of retention and the usual limits; found by its id and its name."""
    async with database.transaction(operator=True) as connection:
        plain = await create_tenant(connection, "plain")
        granted = await create_tenant(connection, "granted", limits=Limits(voices=3), retention_days=30)
        assert (plain.state, plain.limits, plain.retention_days) == (ACTIVE, Limits(), 365)
        assert (granted.limits, granted.retention_days) == (Limits(voices=3), 30)
        assert await find_tenant(connection, granted.id) == await find_tenant_named(connection, "granted") == granted
        assert await find_tenant(connection, uuid4()) is None
        assert await find_tenant_named(connection, "nobody") is None


async def test_a_name_belongs_to_one_tenant(database: Database) -> None:
    """Neither made nor changed to twice; a change to one's own is none."""
    first, second = await _make(database, "first"), await _make(database, "second")
    with pytest.raises(NameTaken):
        await _make(database, "first")
    async with database.transaction(operator=True) as connection:
        with pytest.raises(NameTaken):
            await change_tenant(connection, second.id, name="first")
        assert (await change_tenant(connection, first.id, name="first")).name == "first"
        assert (await change_tenant(connection, first.id, name="third")).name == "third"
        assert (await change_tenant(connection, second.id, name="first")).name == "first"


@pytest.mark.parametrize("name", ["", " ", "a\n", "x" * 201])
async def test_a_name_that_cannot_be_shown_is_refused(database: Database, name: str) -> None:
    """By the same rule as a voice's."""
    with pytest.raises(InvalidValue, match="name"):
        await _make(database, name)


@pytest.mark.parametrize("state", TenantState)
@pytest.mark.parametrize("wanted", TenantState)
async def test_a_tenants_state_goes_where_the_table_says(
    database: Database, state: TenantState, wanted: TenantState
) -> None:
    """To stay where one is, is no step, unless the tenant is gone; what is deleted changes no more."""
    tenant = await _make(database, "acme")
    async with database.transaction(operator=True) as connection:
        for step in WAYS[state]:
            await change_tenant(connection, tenant.id, state=step)
    legal = wanted in TENANT_TRANSITIONS[state] or (wanted is state and state is not DELETED)
    async with database.transaction(operator=True) as connection:
        if legal:
            assert (await change_tenant(connection, tenant.id, state=wanted)).state is wanted
        else:
            with pytest.raises(IllegalTransition):
                await change_tenant(connection, tenant.id, state=wanted)


async def test_a_tenant_that_is_gone_or_was_never_there_is_not_changed(database: Database) -> None:
    """A deleted one is found, says so, and is in no list."""
    tenant = await _make(database, "acme")
    async with database.transaction(operator=True) as connection:
        for state in WAYS[DELETED]:
            await change_tenant(connection, tenant.id, state=state)
        for unchangeable in (tenant.id, uuid4()):
            with pytest.raises(IllegalTransition):
                await change_tenant(connection, unchangeable, limits=Limits())
        found = await find_tenant(connection, tenant.id)
        assert found is not None
        assert found.state is DELETED
        assert (await list_tenants(connection, Page(10))).items == ()
        gone = text("SELECT deleted_at IS NOT NULL FROM tenants WHERE id = :id")
        assert (await connection.execute(gone, {"id": tenant.id})).scalar() is True


async def test_a_tenant_sets_its_retention_within_the_laws_bound_and_nothing_else(store: Store) -> None:
    """One day to three years; its limits are the operator's, and so is every other tenant."""
    other = await _make(store.database, "other")
    async with store.open() as connection:
        for days in (1, MAX_RETENTION_DAYS):
            assert (await set_retention(connection, store.tenant, days)).retention_days == days
        for days in (0, -1, MAX_RETENTION_DAYS + 1):
            with pytest.raises(InvalidValue, match="retention_days"):
                await set_retention(connection, store.tenant, days)
        with pytest.raises(IllegalTransition, match="nothing"):
            await set_retention(connection, other.id, 30)
        assert await find_tenant(connection, other.id) is None
        with pytest.raises(DBAPIError, match="permission denied"):
            await change_tenant(connection, store.tenant, limits=Limits(voices=10))


async def test_tenants_are_listed_in_pages_newest_first(database: Database) -> None:
    """Each once, also those of one moment."""
    async with database.transaction(operator=True) as connection:
        made = [(await create_tenant(connection, f"tenant {number}")).id for number in range(5)]
        first = await list_tenants(connection, Page(3))
        second = await list_tenants(connection, Page(3, first.after))
    assert [len(first.items), len(second.items)] == [3, 2]
    assert {tenant.id for tenant in first.items + second.items} == set(made)
    assert second.after is None


async def test_limits_of_a_later_release_do_not_trouble_this_one(store: Store, owner: Database) -> None:
    """Unknown ones are passed over; only what differs from the defaults is kept."""
    async with store.database.transaction(operator=True) as connection:
        await change_tenant(connection, store.tenant, limits=Limits(contexts=5))
    async with owner.transaction() as connection:
        kept = await connection.execute(text("SELECT limits FROM tenants WHERE id = :id"), {"id": store.tenant})
        assert kept.scalar() == {"contexts": 5}
        later = text('UPDATE tenants SET limits = \'{"contexts": 6, "later": 1}\' WHERE id = :id')
        await connection.execute(later, {"id": store.tenant})
    async with store.open() as connection:
        found = await find_tenant(connection, store.tenant)
    assert found is not None
    assert found.limits == Limits(contexts=6)


@pytest.mark.parametrize("field", Limits.model_fields)
def test_a_limit_is_no_negative_number(field: str) -> None:
    """Zero is one: nothing of it."""
    assert Limits.model_validate({field: 0})
    with pytest.raises(ValidationError):
        Limits.model_validate({field: -1})


async def test_a_walk_comes_to_every_tenant_once(database: Database) -> None:
    """However many pages they fill; to deleted ones only when they are asked for."""
    made = text(
        "INSERT INTO tenants (id, name, state) SELECT gen_random_uuid(), 'tenant ' || n,"
        " CASE WHEN n % 10 = 0 THEN 'deleted' ELSE 'active' END FROM generate_series(1, 1201) n"
    )
    async with database.transaction(operator=True) as connection:
        await connection.execute(made)
    living = [tenant async for tenant in walk_tenants(database, deleted=False)]
    ever = [tenant async for tenant in walk_tenants(database, deleted=True)]
    assert (len(living), len(ever)) == (1081, 1201)
    assert len(set(ever)) == 1201
    assert set(living) < set(ever)
