"""The way of the commands on evidence to the database: as the services see it, with the keys of the settings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from timbrelay.environment import Environment
from timbrelay.errors import ServerError, UsageFault
from timbrelay.stack.servers import Servers
from timbrelay.stack.settings import read_settings

if TYPE_CHECKING:
    from storage.database import Database

PLATFORM_NAME = "(platform)"


@dataclass(frozen=True, slots=True)
class Chain:
    """Whose audit log it is."""

    tenant: UUID
    name: str


@asynccontextmanager
async def open_database(servers: Servers, environment: Environment) -> AsyncIterator[Database]:
    """The database at this release's revision; what storage raises meanwhile becomes ServerError."""
    from storage.database import Database
    from storage.errors import StorageError
    from storage.schema import check_revision

    database = Database.for_service(read_settings(environment, servers), pool_size=1)
    try:
        await check_revision(database)
        yield database
    except StorageError as error:
        raise ServerError(f"{str(error)[:1].upper()}{str(error)[1:]}.") from error
    finally:
        await database.close()


async def find_chain(database: Database, wanted: str) -> Chain:
    """The log of the tenant with this name or id, the platform's for the empty one; raises UsageFault."""
    from sqlalchemy import Text, cast, or_, select

    from storage.evidence.audit import PLATFORM
    from storage.tables import tenants

    if not wanted:
        return Chain(PLATFORM, PLATFORM_NAME)
    columns = tenants.c
    query = select(columns.id, columns.name).where(or_(columns.name == wanted, cast(columns.id, Text) == wanted))
    async with database.transaction(operator=True) as connection:
        found = (await connection.execute(query)).first()
    if found is None:
        raise UsageFault(f"There is no tenant with the name or id {wanted!r}.")
    return Chain(found.id, found.name)


async def list_named_chains(database: Database) -> AsyncIterator[Chain]:
    """The platform's log, then every tenant's."""
    from sqlalchemy import select

    from storage.evidence.audit import PLATFORM
    from storage.evidence.checkpoints import list_chains
    from storage.tables import tenants

    async for tenant in list_chains(database):
        if tenant == PLATFORM:
            yield Chain(tenant, PLATFORM_NAME)
            continue
        async with database.transaction(operator=True) as connection:
            name = (await connection.execute(select(tenants.c.name).where(tenants.c.id == tenant))).scalar()
        yield Chain(tenant, name or "(deleted)")
