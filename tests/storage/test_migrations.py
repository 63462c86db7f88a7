"""The migrations, up and down, with data and without; storage.schema."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import make_url, text

from storage.database import Database
from storage.encryption.envelope import Kind, Label, unseal
from storage.encryption.keyring import Keyring
from storage.encryption.providers import WrappedKey
from storage.encryption.providers.choice import open_provider
from storage.errors import RootKeyError
from storage.paging import Page
from storage.schema import Owner, check_revision, migrate
from storage.settings import Settings
from storage.states import ConsentState, VersionState, VoiceState
from storage.tenancy.api_keys import Scope, authenticate, create_key, rotate_key
from storage.voices.aliases import set_alias
from storage.voices.consents import Statement, end_consent, find_consent, grant_consent, load_statement
from storage.voices.versions import add_version, load_embedding, load_held, load_upload
from storage.voices.voices import begin_deletion, disable_voice, enable_voice, find_voice, list_voices
from tests.conftest import STATEMENT as NEW_STATEMENT
from tests.conftest import TERMS
from tests.storage.catalogue import list_objects
from tests.storage.conftest import Migrate, as_owner, served
from tests.storage.first_release import EMBEDDING, RECORDING, STATEMENT, UPLOAD, Customer, FirstRelease

REVISIONS = ("0001", "0002", "0003", "0004")


def _add_customers(settings: Settings) -> list[Customer]:
    with as_owner(settings) as connection:
        release = FirstRelease(connection, settings)
        return [release.add_customer(name) for name in ("first", "second")]


async def _check(database: Database, keyring: Keyring, customer: Customer) -> None:
    """Everything that the first release kept is read through this release's repositories."""
    tenant = customer.tenant
    caller = await authenticate(database, customer.key)
    assert caller is not None
    assert (caller.tenant, set(caller.scopes)) == (tenant, {Scope.SPEAK, Scope.ENROL, Scope.ADMIN})
    assert await authenticate(database, customer.revoked) is None
    async with database.transaction(tenant=tenant) as connection:
        assert await load_upload(connection, keyring, tenant, customer.pending, 1) == UPLOAD
        assert await load_embedding(connection, keyring, tenant, customer.ready, 1) == EMBEDDING
        assert await load_held(connection, keyring, Label(tenant, customer.ready, Kind.RECORDING, 1)) == RECORDING
        statement = await load_statement(connection, keyring, tenant, customer.consent)
        assert statement == Statement(STATEMENT["subject"], STATEMENT["statement"])
        consent = await find_consent(connection, tenant, customer.consent)
        assert consent is not None
        assert (consent.state, consent.terms.expires_at) == (ConsentState.ACTIVE, None)
        states = {}
        for voice in (await list_voices(connection, tenant, Page(10))).items:
            assert voice.latest is not None
            states[voice.id] = (voice.state, voice.version, voice.latest.number, voice.latest.state)
            if voice.id == customer.failed:
                assert (voice.latest.error_code, voice.latest.error_message) == ("recording_silent", "it is silent")
    assert states == {
        customer.pending: (VoiceState.PENDING, 0, 1, VersionState.PENDING),
        customer.ready: (VoiceState.READY, 1, 1, VersionState.READY),
        customer.failed: (VoiceState.FAILED, 0, 1, VersionState.FAILED),
    }


async def test_what_the_first_release_kept_is_there_after_the_way_up(empty: Settings, go: Migrate) -> None:
    """Keys work, consents and voices open, states and reasons are as they were; each revision alone is a step."""
    go("0001")
    customers = _add_customers(empty)
    for revision in REVISIONS[1:]:
        go(revision)
    async with served(empty) as (database, keyring):
        await check_revision(database)
        for customer in customers:
            await _check(database, keyring, customer)


@pytest.mark.parametrize("revision", REVISIONS[:-1])
async def test_a_way_down_and_up_again_loses_nothing_that_the_older_release_knew(
    empty: Settings, go: Migrate, revision: str
) -> None:
    """The data keys go back under the root key and under new tenant keys; everything still decrypts."""
    go("0001")
    customers = _add_customers(empty)
    go("head")
    go(revision)
    with as_owner(empty) as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == revision
    go("head")
    async with served(empty) as (database, keyring):
        for customer in customers:
            await _check(database, keyring, customer)


async def test_the_first_release_opens_what_was_sealed_since(empty: Settings, go: Migrate) -> None:
    """After the way down, a data key that was made under a tenant key is under the root key."""
    go("0001")
    customer = _add_customers(empty)[0]
    go("head")
    async with served(empty) as (database, keyring), database.transaction(tenant=customer.tenant) as connection:
        consent = (await grant_consent(connection, keyring, customer.tenant, TERMS, NEW_STATEMENT)).id
    go("0001")
    with as_owner(empty) as connection:
        key = connection.execute(text("SELECT * FROM data_keys WHERE owner_id = :id"), {"id": consent}).one()
        sealed = connection.execute(text("SELECT sealed FROM consents WHERE id = :id"), {"id": consent}).scalar_one()
    label = Label(customer.tenant, consent, Kind.DATA_KEY)
    data_key = open_provider(empty).unwrap(WrappedKey(key.root_key_id, key.wrapped_key), label)
    assert b"A. Person" in unseal(data_key, sealed, Label(customer.tenant, consent, Kind.CONSENT))


async def _add_what_is_new(settings: Settings, customer: Customer) -> tuple[dict[str, UUID], dict[str, str]]:
    """Everything that the first release has no words for: returns voices, consents and keys by what they are."""
    tenant = customer.tenant
    ids, keys = {}, {}
    async with served(settings) as (database, keyring), database.transaction(tenant=tenant) as connection:
        for name in ("withdrawn", "kept"):
            ids[name] = (await grant_consent(connection, keyring, tenant, TERMS, NEW_STATEMENT, recording=b"x")).id
        await end_consent(connection, tenant, ids["withdrawn"], ConsentState.WITHDRAWN)
        await set_alias(connection, tenant, "narrator", customer.ready)
        await add_version(connection, keyring, tenant, customer.ready, consent=ids["kept"], upload=b"a replacement")
        await disable_voice(connection, tenant, customer.ready)
        await begin_deletion(connection, tenant, customer.pending)
        for name, scopes, life in (
            ("speak", [Scope.SPEAK], None),
            ("expiring", list(Scope)[:3], timedelta(days=1)),
            ("full", list(Scope)[:3], None),
        ):
            made, key = await create_key(connection, tenant, name=name, scopes=scopes, expires_at=None)
            keys[name] = key.get_secret_value()
            if life is not None:
                await rotate_key(connection, made.id, life)
    return ids, keys


async def test_what_was_ended_does_not_come_back_on_the_way_down_and_up(empty: Settings, go: Migrate) -> None:
    """Disabled stays disabled; a withdrawn consent and a deletion under way end, with their keys; limited keys end."""
    go("0001")
    customer, other = _add_customers(empty)
    go("head")
    ids, keys = await _add_what_is_new(empty, customer)
    go("0001")
    with as_owner(empty) as connection:
        gone = {"gone": [customer.pending, ids["withdrawn"]]}
        assert connection.execute(text("SELECT 1 FROM data_keys WHERE owner_id = ANY (:gone)"), gone).all() == []
        speaking = text("SELECT id FROM voices WHERE state = 'ready' AND tenant_id = :tenant")
        assert connection.execute(speaking, {"tenant": customer.tenant}).all() == []
    go("head")
    async with served(empty) as (database, keyring):
        await _check(database, keyring, other)
        tenant = customer.tenant
        async with database.transaction(tenant=tenant) as connection:
            assert await find_consent(connection, tenant, ids["withdrawn"]) is None
            assert await load_statement(connection, keyring, tenant, ids["kept"]) == NEW_STATEMENT
            assert await find_voice(connection, tenant, customer.pending) is None
            voice = await find_voice(connection, tenant, customer.ready)
            assert voice is not None
            assert (voice.state, voice.version, voice.aliases) == (VoiceState.DISABLED, 1, ())
            await enable_voice(connection, tenant, customer.ready)
            assert await load_embedding(connection, keyring, tenant, customer.ready, 1) == EMBEDDING
        opened = {name for name, key in keys.items() if await authenticate(database, key) is not None}
        assert opened == {"full"}


def test_each_way_down_takes_away_what_its_way_up_has_made(empty: Settings, go: Migrate) -> None:
    """An empty database goes up step by step, and down again, and each step back leaves what was there before."""
    seen = []
    for revision in REVISIONS:
        go(revision)
        with as_owner(empty) as connection:
            seen.append(list_objects(connection))
    for revision, expected in zip(reversed(REVISIONS[:-1]), reversed(seen[:-1]), strict=True):
        go(revision)
        with as_owner(empty) as connection:
            found = list_objects(connection)
        assert found - expected == set(), f"left behind on the way to {revision}"
        assert expected - found == set(), f"not restored on the way to {revision}"
    go("base")
    with as_owner(empty) as connection:
        assert {row[2] for row in list_objects(connection) if row[0] == "column"} == {"alembic_version"}
    go("head")


def test_without_its_root_key_a_database_with_voices_stays_as_it_was(empty: Settings, go: Migrate) -> None:
    """Only data keys need it on their way; a migration without it fails whole."""

    def refuse() -> Any:
        raise RootKeyError("no root key")

    go("0001")
    _add_customers(empty)
    owner = Owner(empty.owner_url, empty.service_role, empty.operator_role, refuse)
    with pytest.raises(RootKeyError):
        migrate(owner)
    with as_owner(empty) as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == "0001"
        assert connection.execute(text("SELECT count(*) FROM data_keys")).scalar() == 6
        for table in ("voice_versions", "voices", "consents", "data_keys", "api_keys", "tenants"):
            connection.execute(text(f"DELETE FROM {table}"))  # noqa: S608
    migrate(owner)


@pytest.fixture
def plain_owner(empty: Settings) -> Iterator[Owner]:
    """The empty database's owner as at a hosting company: no superuser, so that forced policies hold it as well."""
    database = make_url(empty.owner_url).database or ""
    name = f"{database}_owner"
    with psycopg.connect(empty.owner_url, autocommit=True) as connection:
        for step in (
            "CREATE ROLE {name} LOGIN CREATEROLE NOSUPERUSER NOBYPASSRLS",
            "GRANT timbrelay_service, timbrelay_operator TO {name} WITH ADMIN OPTION",
            "ALTER DATABASE {database} OWNER TO {name}",
        ):
            named = {"name": sql.Identifier(name), "database": sql.Identifier(database)}
            connection.execute(sql.SQL(step).format(**named))
        url = make_url(empty.owner_url).set(username=name).render_as_string(hide_password=False)
        yield Owner(url, empty.service_role, empty.operator_role, lambda: open_provider(empty))
        for ending in ("REASSIGN OWNED BY {} TO CURRENT_USER", "DROP OWNED BY {}", "DROP ROLE {}"):
            connection.execute(sql.SQL(ending).format(sql.Identifier(name)))


async def test_an_owner_who_is_no_superuser_migrates_as_well(empty: Settings, plain_owner: Owner) -> None:
    """The policies that hold the owner too are lifted while rows are changed, and are back afterwards."""
    migrate(plain_owner, "0001")
    customer, other = _add_customers(empty)
    migrate(plain_owner)
    async with served(empty) as (database, keyring):
        await _check(database, keyring, customer)
    ids, _ = await _add_what_is_new(empty, customer)
    migrate(plain_owner, "0001")
    migrate(plain_owner)
    async with served(empty) as (database, keyring):
        await database.check_role()
        await _check(database, keyring, other)
        async with database.transaction(tenant=customer.tenant) as connection:
            assert await find_consent(connection, customer.tenant, ids["withdrawn"]) is None
            assert await find_voice(connection, customer.tenant, customer.pending) is None
            voice = await find_voice(connection, customer.tenant, customer.ready)
    assert voice is not None
    assert voice.state is VoiceState.DISABLED
    forced = "SELECT relname FROM pg_class c WHERE relkind = 'r' AND relrowsecurity AND NOT relforcerowsecurity"
    with as_owner(empty) as owning:
        assert {row[0] for row in owning.execute(text(forced))} == {"tenants", "api_keys"}
