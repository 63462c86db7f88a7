"""API keys, made and revoked in the database by its owner."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from timbrelay.errors import ServerError, UsageFault
from timbrelay.events import RelayError
from timbrelay.stack.folder import DataFolder, write_private
from timbrelay.stack.servers import Servers

if TYPE_CHECKING:
    from storage.database import Database

T = TypeVar("T")

DEMO_TENANT = "demo"


async def create(servers: Servers, tenant: str) -> tuple[str, str]:
    """The id and the text of a new key for the tenant, which is made if there is none of that name."""
    from storage.tenancy.api_keys import Scope, create_key
    from storage.tenancy.tenants import create_tenant, find_tenant_named

    async with _as_owner(servers) as owner, owner.transaction() as connection:
        found = await find_tenant_named(connection, tenant) or await create_tenant(connection, tenant)
        scopes = (Scope.SPEAK, Scope.ENROL, Scope.ADMIN)
        made, key = await create_key(connection, found.id, name="", scopes=scopes, expires_at=None)
    return str(made.id), key.get_secret_value()


def parse_key_id(key_id: str) -> UUID:
    """Raises UsageFault for anything that cannot be the id of a key."""
    try:
        return UUID(key_id)
    except ValueError as error:
        raise UsageFault(f"{key_id!r} is not the id of a key; `timbrelay keys create` prints it.") from error


async def revoke(servers: Servers, key_id: UUID) -> None:
    """Ends a key. Raises UsageFault when there is none that still works."""
    from storage.tenancy.api_keys import revoke_key

    async with _as_owner(servers) as owner, owner.transaction() as connection:
        if not await revoke_key(connection, key_id):
            raise UsageFault(f"No key with the id {key_id} is in use.")


async def local_key(folder: DataFolder, servers: Servers, *, anew: bool = False) -> str:
    """The key of the tenant "demo", kept in the data folder (mode 0600); made when there is none, or `anew`."""
    file = key_file(folder)
    if file.exists() and not anew:
        return file.read_text().strip()
    _, key = await create(servers, DEMO_TENANT)
    write_private(file, key + "\n")
    return key


async def with_local_key(folder: DataFolder, servers: Servers, act: Callable[[str], Awaitable[T]]) -> T:
    """What `act` gives with the local key; once more with a new one when the relay does not know it.

    So it is after the database was begun anew.
    """
    try:
        return await act(await local_key(folder, servers))
    except RelayError as error:
        if error.code != "unauthorized":
            raise
    return await act(await local_key(folder, servers, anew=True))


def key_file(folder: DataFolder) -> Path:
    """Where the local tenant's key is kept."""
    return folder.path / "demo.key"


@asynccontextmanager
async def _as_owner(servers: Servers) -> AsyncIterator[Database]:
    from storage.database import Database
    from storage.errors import StorageError
    from storage.schema import check_revision

    owner = Database(servers.database_owner_url, "", pool_size=1)
    try:
        await check_revision(owner)
        yield owner
    except StorageError as error:
        raise ServerError(str(error)) from error
    finally:
        await owner.close()
