"""API keys, made and revoked in the database by its owner."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from storage.private_files import write_private
from timbrelay.errors import ServerError, UsageFault
from timbrelay.events import RelayError
from timbrelay.stack.folder import DataFolder
from timbrelay.stack.servers import Servers

if TYPE_CHECKING:
    from storage.database import Database
    from storage.evidence.audit import Act

T = TypeVar("T")

DEMO_TENANT = "demo"


@dataclass(frozen=True, slots=True)
class Order:
    """What key is wanted."""

    tenant: str
    """Its name; empty for a key of the operator."""
    scopes: tuple[str, ...] = ("speak", "enrol", "admin")
    expires_at: datetime | None = None
    name: str = ""


async def create(servers: Servers, order: Order) -> tuple[str, str]:
    """The id and the text of a new key; its tenant is made if there is none of that name.

    Raises UsageFault when there can be no such tenant or key.
    """
    from storage.errors import InvalidValue
    from storage.evidence.audit import PLATFORM, append
    from storage.tenancy.api_keys import Scope, create_key

    async with _as_owner(servers) as owner:
        try:
            tenant = await _ensure_tenant(owner, order.tenant) if order.tenant else None
            async with owner.transaction(tenant=tenant or PLATFORM) as connection:
                made, key = await create_key(
                    connection,
                    tenant,
                    name=order.name,
                    scopes=[Scope(scope) for scope in order.scopes],
                    expires_at=order.expires_at,
                )
                act = _act("key.created", made.id, scopes=list(order.scopes))
                await append(connection, tenant or PLATFORM, act)
        except InvalidValue as error:
            raise UsageFault(f"There can be no such key: {error}.") from error
    return str(made.id), key.get_secret_value()


def parse_order(tenant: str, scopes: str, expires: str, operator: bool, name: str = "") -> Order:
    """What the command line asks for; raises UsageFault.

    `expires` is a number of days like `90d`, a day, or a time like 2027-01-31T12:00:00Z; empty for never.
    """
    if operator == bool(tenant):
        raise UsageFault("A key is either a tenant's (--tenant) or the operator's (--operator).")
    wanted = tuple(dict.fromkeys(scope.strip() for scope in scopes.split(",") if scope.strip()))
    if operator:
        return Order("", ("operator",), _parse_time(expires), name)
    unknown = set(wanted) - {"speak", "enrol", "admin"}
    if unknown or not wanted:
        raise UsageFault("--scopes takes `speak`, `enrol` and `admin`, with commas between them.")
    return Order(tenant, wanted, _parse_time(expires), name)


def parse_key_id(key_id: str) -> UUID:
    """Raises UsageFault for anything that cannot be the id of a key."""
    try:
        return UUID(key_id)
    except ValueError as error:
        raise UsageFault(f"{key_id!r} is not the id of a key; `timbrelay keys create` prints it.") from error


async def revoke(servers: Servers, key_id: UUID) -> None:
    """Ends a key, and what it has opened. Raises UsageFault when there is none that still works."""
    from sqlalchemy import select

    from storage.evidence.audit import PLATFORM, append
    from storage.tables import api_keys
    from storage.tenancy.api_keys import revoke_key

    async with _as_owner(servers) as owner:
        async with owner.transaction() as connection:
            tenant = (await connection.execute(select(api_keys.c.tenant_id).where(api_keys.c.id == key_id))).scalar()
        async with owner.transaction(tenant=tenant or PLATFORM) as connection:
            if not await revoke_key(connection, key_id):
                raise UsageFault(f"No key with the id {key_id} is in use.")
            await append(connection, tenant or PLATFORM, _act("key.revoked", key_id))
    await _tell_relays(servers, key_id)


async def local_key(folder: DataFolder, servers: Servers, *, anew: bool = False) -> str:
    """The key of the tenant "demo", kept in the data folder (mode 0600); made when there is none, or `anew`."""
    file = key_file(folder)
    if file.exists() and not anew:
        return file.read_text().strip()
    _, key = await create(servers, Order(DEMO_TENANT, name="local"))
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


async def _ensure_tenant(owner: Database, name: str) -> UUID:
    from storage.evidence.audit import PLATFORM, append
    from storage.tenancy.tenants import create_tenant, find_tenant_named

    async with owner.transaction(tenant=PLATFORM) as connection:
        if found := await find_tenant_named(connection, name):
            return found.id
        made = await create_tenant(connection, name)
        await append(connection, PLATFORM, _act("tenant.created", made.id))
    return made.id


async def _tell_relays(servers: Servers, key_id: UUID) -> None:
    """A relay that does not hear it looks its keys up once a minute."""
    from storage.errors import ServerUnavailable
    from storage.redis import connect
    from storage.streams.broadcasts import revoke_key

    redis = connect(servers.redis_url, connections=1)
    try:
        await revoke_key(redis, key_id)
    except ServerUnavailable as error:
        raise ServerError(
            f"The key is revoked, but what it has opened stays open for up to a minute: {error}"
        ) from error
    finally:
        await redis.aclose()


def _act(action: str, object_id: UUID, **detail: Any) -> Act:
    from storage.evidence.audit import Act

    return Act("operator:cli", action, action.partition(".")[0], str(object_id), "cli", detail)


def _parse_time(text: str) -> datetime | None:
    if not text:
        return None
    try:
        if re.fullmatch(r"[0-9]{1,5}d", text):
            return datetime.now(UTC) + timedelta(days=int(text[:-1]))
        at = datetime.fromisoformat(text)
    except (ValueError, OverflowError) as error:
        raise UsageFault(
            f"--expires takes days like `90d`, or a time like 2027-01-31T12:00:00Z, not {text!r}."
        ) from error
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    if at <= datetime.now(UTC):
        raise UsageFault(f"--expires {text!r} is over already.")
    return at


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
