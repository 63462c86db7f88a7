"""What the tests of the storage room share: the owner's way in, a tenant, and one that has something in every table."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import Connection, create_engine, insert, make_url, text
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.pool import NullPool

from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.encryption.providers.choice import open_provider
from storage.errors import StorageError
from storage.evidence.audit import Act, append
from storage.schema import Owner, migrate
from storage.settings import Settings
from storage.states import VoiceState
from storage.tables import audit_checkpoints, deletions
from storage.tenancy.idempotency import begin
from storage.tenancy.usage import Usage, add_usage
from storage.voices.aliases import set_alias
from storage.voices.consents import Terms, grant_consent
from storage.voices.versions import Enrolled, complete_enrolment, fail_enrolment
from storage.voices.voices import Voice, begin_deletion, create_voice, disable_voice, find_voice, finish_deletion
from tests.conftest import STATEMENT, TERMS, MakeTenant, MakeVoice
from tests.storage.catalogue import find_tables

EMBEDDING = bytes(range(256)) * 4

FillTenant = Callable[[str], Awaitable[UUID]]
Migrate = Callable[[str], None]


@pytest.fixture
async def owner(settings: Settings) -> AsyncIterator[Database]:
    """The database as the tables' owner sees it."""
    opened = Database.for_owner(settings)
    yield opened
    await opened.close()


@pytest.fixture
async def tenant(make_tenant: MakeTenant) -> UUID:
    """A tenant that has nothing yet."""
    return (await make_tenant("acme")).id


@pytest.fixture
def fill_tenant(database: Database, keyring: Keyring, make_tenant: MakeTenant, make_voice: MakeVoice) -> FillTenant:
    """`await fill_tenant("acme")`: a tenant with at least a row in every table that has tenants' rows."""

    async def fill(name: str) -> UUID:
        tenant = (await make_tenant(name)).id
        voice = await make_voice(tenant, embedding=EMBEDDING, name=f"voice of {name}")
        await make_voice(tenant, name=f"pending of {name}")
        async with database.transaction(tenant=tenant) as connection:
            assert await set_alias(connection, tenant, f"alias-of-{name}", voice)
            await add_usage(connection, tenant, [Usage(date(2026, 11, 30), voice, 1, 2, 3, 4)])
            await begin(connection, keyring, tenant, f"key-of-{name}", b"a request")
            row = {"id": uuid4(), "tenant_id": tenant, "object_kind": "voice", "object_id": voice}
            row |= {"reason": "request", "requested_by": "operator:cli", "requested_at": datetime.now(UTC)}
            await connection.execute(insert(deletions).values(**row))
            await append(connection, tenant, Act("system:test", "voice.created", "voice", str(voice), "cli"))
            await connection.execute(
                insert(audit_checkpoints).values(tenant_id=tenant, sequence=1, signed=f"signed for {name}")
            )
        return tenant

    return fill


@pytest.fixture
async def victim(fill_tenant: FillTenant) -> UUID:
    return await fill_tenant("victim")


@pytest.fixture(params=["another tenant", "no tenant"])
async def intruder(request: pytest.FixtureRequest, victim: UUID, fill_tenant: FillTenant) -> UUID | None:
    """Who asks for the victim's rows."""
    return await fill_tenant("intruder") if request.param == "another tenant" else None


@pytest.fixture
async def tables(owner: Database, victim: UUID) -> dict[str, str]:
    """The tables, each with something of the victim's in it, or the attempts would prove nothing."""
    found = await find_tables(owner)
    async with owner.transaction() as connection:
        for table, column in found.items():
            query = text(f"SELECT count(*) FROM {table} WHERE {column} = :victim")  # noqa: S608
            assert (await connection.execute(query, {"victim": victim})).scalar(), f"{table} is empty"
    return found


@pytest.fixture
def empty(settings: Settings) -> Iterator[Settings]:
    """The settings with a database that was never migrated."""
    name = (make_url(settings.owner_url).database or "") + "_empty"
    with psycopg.connect(settings.owner_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        urls = (settings.database_url, settings.owner_url)
        own, owners = (make_url(url).set(database=name).render_as_string(hide_password=False) for url in urls)
        yield settings.model_copy(update={"database_url": own, "database_owner_url": owners})
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def go(empty: Settings) -> Migrate:
    """`go("0002")` migrates the empty database up or down."""
    owner = Owner(empty.owner_url, empty.service_role, empty.operator_role, lambda: open_provider(empty))
    return lambda revision: migrate(owner, revision)


@contextmanager
def as_owner(settings: Settings) -> Iterator[Connection]:
    """A transaction of the owner's, without waiting."""
    url = make_url(settings.owner_url).set(drivername="postgresql+psycopg")
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        yield connection
    engine.dispose()


@asynccontextmanager
async def served(settings: Settings) -> AsyncIterator[tuple[Database, Keyring]]:
    """The database as a service would see it, and its keyring."""
    database = Database.for_service(settings)
    try:
        yield database, Keyring.from_settings(settings)
    finally:
        await database.close()


@dataclass(frozen=True, slots=True)
class Store:
    """A tenant's transactions, and what is needed before a test can begin."""

    database: Database
    keyring: Keyring
    tenant: UUID

    def open(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """A transaction of the tenant's."""
        return self.database.transaction(tenant=self.tenant)

    async def add_consent(self, terms: Terms = TERMS, *, recording: bytes | None = None) -> UUID:
        """A consent in force, unless its terms are over."""
        async with self.open() as connection:
            return (
                await grant_consent(connection, self.keyring, self.tenant, terms, STATEMENT, recording=recording)
            ).id

    async def add_voice(
        self, state: VoiceState = VoiceState.READY, *, name: str = "demo", consent: UUID | None = None
    ) -> UUID:
        """A voice in a state, with one version."""
        consent = consent or await self.add_consent()
        async with self.open() as connection:
            voice = await create_voice(
                connection, self.keyring, self.tenant, name=name, consent=consent, upload=b"upload 1"
            )
            assert voice is not None
        if state in (VoiceState.READY, VoiceState.DISABLED):
            await self.complete(voice.id, 1)
        async with self.open() as connection:
            if state is VoiceState.DISABLED:
                await disable_voice(connection, self.tenant, voice.id)
            if state is VoiceState.FAILED:
                await fail_enrolment(connection, self.tenant, voice.id, 1, code="recording_silent", message="silent")
            if state in (VoiceState.DELETING, VoiceState.DELETED):
                assert await begin_deletion(connection, self.tenant, voice.id)
            if state is VoiceState.DELETED:
                await finish_deletion(connection, self.tenant, voice.id)
        return voice.id

    async def complete(self, voice: UUID, version: int) -> None:
        """Enrol a version, with contents that name it."""
        async with self.open() as connection:
            await complete_enrolment(connection, self.keyring, self.tenant, voice, version, enrolled(version))

    async def see(self, voice: UUID) -> Voice:
        """The voice as it is now."""
        async with self.open() as connection:
            found = await find_voice(connection, self.tenant, voice)
        assert found is not None
        return found


def enrolled(version: int) -> Enrolled:
    """What an enrolment has made of a version."""
    return Enrolled(b"recording %d" % version, b"embedding %d" % version, 6.0, 90, {"snr_db": 30.5})


@pytest.fixture
def store(database: Database, keyring: Keyring, tenant: UUID) -> Store:
    """The tenant's own."""
    return Store(database, keyring, tenant)


Step = Callable[[AsyncConnection], Awaitable[object]]
Meet = Callable[[Store, Step, Step], Awaitable[tuple[object, object]]]


@pytest.fixture
def meet(owner: Database) -> Meet:
    """`await meet(store, first, second)`: the second step comes while the first one's transaction is open.

    It has to wait; gives what each returned or raised.
    """
    waiting = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )

    async def run(store: Store, step: Step) -> object:
        try:
            async with store.open() as connection:
                return await step(connection)
        except StorageError as error:
            return error

    async def both(store: Store, first: Step, second: Step) -> tuple[object, object]:
        async with store.open() as connection:
            begun = await first(connection)
            rival = asyncio.create_task(run(store, second))
            for _ in range(1000):
                async with owner.transaction() as watching:
                    if (await watching.execute(waiting)).scalar_one():
                        break
                await asyncio.sleep(0.005)
            else:
                rival.cancel()
                raise AssertionError("the second step did not wait for the first")
        return begun, await rival

    return both
