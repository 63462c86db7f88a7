"""storage.tenancy.api_keys, over a real Postgres."""

from __future__ import annotations

import hmac
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.database import Database
from storage.errors import IllegalTransition, InvalidValue
from storage.paging import Page
from storage.states import TenantState
from storage.tenancy import api_keys
from storage.tenancy.api_keys import (
    MAX_OVERLAP,
    PERMITS,
    Deed,
    Scope,
    authenticate,
    create_key,
    find_ends,
    hash_key,
    list_keys,
    revoke_key,
    rotate_key,
)
from storage.tenancy.limits import Limits
from storage.tenancy.tenants import change_tenant, create_tenant
from tests.conftest import MakeTenant
from tests.storage.conftest import Meet, Store

HOUR = timedelta(hours=1)


async def _make(
    store: Store, *, scopes: tuple[Scope, ...] = (Scope.SPEAK,), expires_at: datetime | None = None
) -> tuple[UUID, str]:
    async with store.open() as connection:
        made, key = await create_key(connection, store.tenant, name="key", scopes=scopes, expires_at=expires_at)
    return made.id, key.get_secret_value()


async def _set_state(store: Store, *states: TenantState) -> None:
    for state in states:
        async with store.database.transaction(operator=True) as connection:
            await change_tenant(connection, store.tenant, state=state)


async def test_a_key_opens_its_tenant_with_its_scopes_and_the_tenants_limits(store: Store) -> None:
    """What the operator granted beyond the defaults, and when the key ends."""
    ends = datetime.now(UTC) + HOUR
    limits = Limits(contexts=7)
    async with store.database.transaction(operator=True) as connection:
        await change_tenant(connection, store.tenant, limits=limits)
    key_id, key = await _make(store, scopes=(Scope.SPEAK, Scope.ENROL), expires_at=ends)
    caller = await authenticate(store.database, key)
    assert caller is not None
    assert (caller.key_id, caller.tenant, set(caller.scopes)) == (key_id, store.tenant, {Scope.SPEAK, Scope.ENROL})
    assert (caller.expires_at, caller.limits, caller.tenant_state) == (ends, limits, TenantState.ACTIVE)


async def test_only_a_hash_is_kept_and_the_key_is_shown_once(store: Store, owner: Database) -> None:
    """The database holds its SHA-256; what is returned hides it until it is asked for."""
    async with store.open() as connection:
        made, key = await create_key(connection, store.tenant, name="key", scopes=[Scope.SPEAK], expires_at=None)
    shown = key.get_secret_value()
    assert shown.startswith("tr_")
    assert len(shown) >= 46
    assert shown not in repr(key) + str(key) + repr(made)
    async with owner.transaction() as connection:
        dump = str((await connection.execute(text("SELECT k::text FROM api_keys k"))).all())
    assert shown not in dump
    assert shown[3:] not in dump
    assert hash_key(shown).hex() in dump


@pytest.mark.parametrize(
    "key", ["", "tr_", "tr_" + "x" * 500, "sk-other", "tr_wrong", "tr_\0", "tr_ä", "Bearer tr_x", "\ud800"]
)
async def test_what_is_no_key_opens_nothing(store: Store, key: str) -> None:
    """Empty, foreign, oversized, unknown and garbled keys are all the same: nobody's."""
    await _make(store)
    assert await authenticate(store.database, key) is None
    assert len(hash_key(key)) == 32


async def test_a_key_ends_when_it_is_revoked_or_its_time_is_over(store: Store) -> None:
    """At once, for a new request as for those who hold a socket; revoking twice is told apart."""
    lasting, revoked = [await _make(store) for _ in range(2)]
    expired = await _make(store, expires_at=datetime.now(UTC) - timedelta(seconds=1))
    async with store.open() as connection:
        assert await revoke_key(connection, revoked[0]) is True
    async with store.open() as connection:
        assert await revoke_key(connection, revoked[0]) is False
        assert await revoke_key(connection, uuid4()) is False
    assert [await authenticate(store.database, key) is not None for _, key in (lasting, revoked, expired)] == [
        True,
        False,
        False,
    ]
    assert set(await find_ends(store.database, [lasting[0], revoked[0], expired[0], uuid4()])) == {lasting[0]}
    assert set(await find_ends(store.database, [])) == set()


def test_the_table_has_every_state_and_who_permits_anything_permits_reading() -> None:
    """Nobody who may do something is kept from looking; only an active tenant speaks and makes something new."""
    assert set(PERMITS) == set(TenantState)
    for state, permit in PERMITS.items():
        assert (Deed.READ in permit.deeds) == bool(permit.deeds) == bool(permit.scopes)
        assert (state is TenantState.ACTIVE) == bool(permit.deeds & {Deed.SPEAK, Deed.CHANGE})


async def test_a_suspended_tenants_keys_do_what_peoples_rights_need_until_it_is_active_again(store: Store) -> None:
    """All of them; they keep their scopes, and of nobody else's any is touched."""
    key_id, key = await _make(store)
    async with store.database.transaction(operator=True) as connection:
        other = (await create_tenant(connection, "other")).id
        others, others_key = await create_key(connection, other, name="", scopes=[Scope.SPEAK], expires_at=None)
    await _set_state(store, TenantState.SUSPENDED)
    caller, stranger = [await authenticate(store.database, it) for it in (key, others_key.get_secret_value())]
    assert caller is not None and stranger is not None
    assert (set(caller.scopes), caller.tenant_state) == ({Scope.SPEAK}, TenantState.SUSPENDED)
    assert {deed for deed in Deed if caller.may(deed)} == {Deed.READ, Deed.END}
    assert {deed for deed in Deed if stranger.may(deed)} == set(Deed)
    assert set(await find_ends(store.database, [key_id, others.id])) == {key_id, others.id}
    assert set(await find_ends(store.database, [key_id, others.id], Deed.SPEAK)) == {others.id}
    await _set_state(store, TenantState.ACTIVE)
    assert set(await find_ends(store.database, [key_id, others.id], Deed.SPEAK)) == {key_id, others.id}


async def test_a_tenant_that_is_being_deleted_may_only_watch(store: Store) -> None:
    """Its keys are left `admin`, to see what becomes of the deletion; once it is deleted they open nothing."""
    _, key = await _make(store, scopes=(Scope.SPEAK, Scope.ENROL, Scope.ADMIN))
    speaking, _ = await _make(store)
    await _set_state(store, TenantState.DELETING)
    caller = await authenticate(store.database, key)
    assert caller is not None
    assert (set(caller.scopes), caller.tenant_state) == ({Scope.ADMIN}, TenantState.DELETING)
    assert {deed for deed in Deed if caller.may(deed)} == {Deed.READ, Deed.END, Deed.REMOVE}
    assert set(await find_ends(store.database, [speaking], Deed.SPEAK)) == set()
    await _set_state(store, TenantState.DELETED)
    assert await authenticate(store.database, key) is None


async def test_a_rotated_key_works_beside_its_successor_for_the_overlap(store: Store) -> None:
    """Both have the same name, scopes and length of life; the old one knows its successor and is not rotated again."""
    life = timedelta(days=30)
    old_id, old = await _make(store, scopes=(Scope.ENROL,), expires_at=datetime.now(UTC) + life)
    async with store.open() as connection:
        new, text_of_new = await rotate_key(connection, old_id, HOUR)
    assert (new.name, set(new.scopes), new.tenant_id) == ("key", {Scope.ENROL}, store.tenant)
    assert new.expires_at is not None
    assert abs(new.expires_at - datetime.now(UTC) - life) < timedelta(minutes=5)
    for key in (old, text_of_new.get_secret_value()):
        assert await authenticate(store.database, key) is not None
    async with store.open() as connection:
        listed = {key.id: key for key in (await list_keys(connection, store.tenant, Page(10))).items}
    replaced = listed[old_id]
    assert replaced.expires_at is not None
    assert (replaced.replaced_by, listed[new.id].replaced_by) == (new.id, None)
    assert timedelta() < replaced.expires_at - datetime.now(UTC) <= HOUR
    with pytest.raises(IllegalTransition, match="rotated"):
        async with store.open() as connection:
            await rotate_key(connection, old_id, HOUR)


async def test_a_rotation_without_an_overlap_ends_the_old_key_at_once(store: Store) -> None:
    """And one with an overlap never lengthens a life that ends sooner."""
    at_once, soon = await _make(store), await _make(store, expires_at=datetime.now(UTC) + HOUR)
    async with store.open() as connection:
        await rotate_key(connection, at_once[0], timedelta())
        await rotate_key(connection, soon[0], timedelta(days=1))
    assert await authenticate(store.database, at_once[1]) is None
    async with store.open() as connection:
        listed = {key.id: key for key in (await list_keys(connection, store.tenant, Page(10))).items}
    ends = listed[soon[0]].expires_at
    assert ends is not None
    assert ends <= datetime.now(UTC) + HOUR


async def test_of_two_rotations_at_once_one_makes_a_successor(store: Store, meet: Meet) -> None:
    """The second waits, and is told."""
    key_id, _ = await _make(store)
    rotate = partial(rotate_key, key_id=key_id, overlap=HOUR)
    made, refused = await meet(store, rotate, rotate)
    assert isinstance(made, tuple)
    assert isinstance(refused, IllegalTransition)


async def test_a_key_that_works_no_more_is_not_rotated(store: Store, make_tenant: MakeTenant) -> None:
    """Neither a revoked, an expired nor an unknown one, nor another tenant's; nor for longer than the bound."""
    revoked, expired = await _make(store), await _make(store, expires_at=datetime.now(UTC) - HOUR)
    others = (await make_tenant("other")).key_id
    async with store.open() as connection:
        await revoke_key(connection, revoked[0])
    for key_id, reason in ((revoked[0], "revoked"), (expired[0], "expired"), (uuid4(), "nothing"), (others, "nothing")):
        with pytest.raises(IllegalTransition, match=reason):
            async with store.open() as connection:
                await rotate_key(connection, key_id, HOUR)
    lasting, _ = await _make(store)
    for overlap in (-HOUR, MAX_OVERLAP + HOUR):
        with pytest.raises(InvalidValue, match="overlap"):
            async with store.open() as connection:
                await rotate_key(connection, lasting, overlap)
    async with store.open() as connection:
        assert await revoke_key(connection, others) is False


@pytest.mark.parametrize("scopes", [[], [Scope.OPERATOR], [Scope.SPEAK, Scope.OPERATOR]])
async def test_a_tenants_key_has_scopes_and_none_of_the_operators(store: Store, scopes: list[Scope]) -> None:
    """Refused before the database refuses it as well."""
    with pytest.raises(InvalidValue, match="scopes"):
        async with store.open() as connection:
            await create_key(connection, store.tenant, name="", scopes=scopes, expires_at=None)


async def test_the_operators_keys_belong_to_no_tenant(store: Store) -> None:
    """They have that one scope, no tenant makes or lists them, and they are found by the operator."""
    with pytest.raises(InvalidValue, match="scopes"):
        async with store.database.transaction(operator=True) as connection:
            await create_key(connection, None, name="", scopes=[Scope.SPEAK], expires_at=None)
    async with store.database.transaction(operator=True) as connection:
        made, key = await create_key(connection, None, name="root", scopes=[Scope.OPERATOR], expires_at=None)
        assert [found.id for found in (await list_keys(connection, None, Page(10))).items] == [made.id]
    caller = await authenticate(store.database, key.get_secret_value())
    assert caller is not None
    assert (caller.tenant, set(caller.scopes), caller.limits) == (None, {Scope.OPERATOR}, Limits())
    with pytest.raises(Exception, match="row-level security"):
        async with store.open() as connection:
            await create_key(connection, None, name="", scopes=[Scope.OPERATOR], expires_at=None)
    async with store.open() as connection:
        assert (await list_keys(connection, None, Page(10))).items == ()


async def test_keys_are_listed_in_pages_newest_first(store: Store) -> None:
    """Revoked ones as well, each once, also those of one moment."""
    async with store.open() as connection:
        made = {
            (await create_key(connection, store.tenant, name=str(n), scopes=[Scope.SPEAK], expires_at=None))[0].id
            for n in range(6)
        }
        await revoke_key(connection, next(iter(made)))
        first = await list_keys(connection, store.tenant, Page(4))
        second = await list_keys(connection, store.tenant, Page(4, first.after))
    seen = [key.id for key in first.items + second.items]
    assert (len(seen), made < set(seen), second.after) == (7, True, None)


async def test_hashes_are_compared_in_constant_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the index finds is compared once more, by the one comparison that gives nothing away."""
    _, key = await _make(store)
    compared = []

    def compare(first: bytes, second: bytes) -> bool:
        compared.append((first, second))
        return False

    with monkeypatch.context() as patched:
        patched.setattr(api_keys, "hmac", type("Patched", (), {"compare_digest": staticmethod(compare)}))
        assert await authenticate(store.database, key) is None
    assert compared == [(hash_key(key), hash_key(key))]
    assert hmac.compare_digest(*compared[0])
    assert await authenticate(store.database, key) is not None


async def test_authentication_reads_indexes_alone(
    store: Store, owner: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among ten thousand keys one is found by its hash, and its tenant by its id; the policies do not hinder it."""
    await _make(store)
    fill = text(
        "INSERT INTO api_keys (id, tenant_id, key_hash, scopes) SELECT gen_random_uuid(), :tenant,"
        " sha256(n::text::bytea), '{speak}' FROM generate_series(1, 10000) n"
    )
    others = text("INSERT INTO tenants (id, name) SELECT gen_random_uuid(), n::text FROM generate_series(1, 5000) n")
    async with owner.transaction() as connection:
        await connection.execute(others)
        await connection.execute(fill, {"tenant": store.tenant})
        await connection.execute(text("ANALYZE api_keys, tenants"))
    plans: list[str] = []
    key_id, key = await _make(store)
    _explain_first(monkeypatch, plans)
    caller = await authenticate(store.database, key)
    assert caller is not None
    assert caller.key_id == key_id
    [plan] = plans
    assert "Seq Scan" not in plan, plan
    assert "api_keys_key_hash_key" in plan, plan


def _explain_first(monkeypatch: pytest.MonkeyPatch, plans: list[str]) -> None:
    """Have the very query of `authenticate` explained where it runs, in the same transaction."""
    execute = AsyncConnection.execute

    async def explained(self: AsyncConnection, statement: Any, *arguments: Any, **named: Any) -> Any:
        if "key_hash" in str(statement) and "set_config" not in str(statement):
            compiled = statement.compile(dialect=self.dialect)
            found = await self.exec_driver_sql(f"EXPLAIN {compiled.string}", compiled.construct_params())
            plans.append("\n".join(found.scalars()))
        return await execute(self, statement, *arguments, **named)

    monkeypatch.setattr(AsyncConnection, "execute", explained)
