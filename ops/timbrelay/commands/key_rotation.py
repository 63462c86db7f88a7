"""`timbrelay keys rotate` and `timbrelay keys status`: the keys that wrap other keys, and their succession."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from timbrelay.console import Bar, show_progress
from timbrelay.environment import Environment
from timbrelay.errors import OpsError, ServerError, UsageFault
from timbrelay.interruption import Interruption
from timbrelay.stack.local import open_servers
from timbrelay.stack.servers import Servers
from timbrelay.stack.settings import read_settings

if TYPE_CHECKING:
    from storage.database import Database
    from storage.encryption.keyring import Keyring
    from storage.encryption.rotation import RootKeys
    from storage.encryption.tenant_rotation import Cause


@dataclass(frozen=True, slots=True)
class Plan:
    """What to rotate."""

    root: bool
    tenants: bool
    tenant: str = ""
    """The id or name of the one tenant whose key is rotated; empty for all."""
    destroy_old: bool = False
    anew: bool = False
    """Whether a new root key is made although an earlier rotation has left something under an older one."""
    dry_run: bool = False

    @classmethod
    def parse(cls, *, tenant: str, root: bool, everything: bool, destroy_old: bool, anew: bool, dry_run: bool) -> Plan:
        """Raises UsageFault when it is not clear what to rotate."""
        if not (tenant or root or everything) or (tenant and everything):
            raise UsageFault("Say what to rotate: --root, --tenant NAME, or --all for the root key and every tenant's.")
        if (destroy_old or anew) and not (root or everything):
            raise UsageFault("--destroy-old and --new go with --root or --all; tenants' old keys are always destroyed.")
        return cls(root or everything, bool(tenant) or everything, tenant, destroy_old, anew, dry_run)


@dataclass(frozen=True, slots=True)
class _Keys:
    database: Database
    keyring: Keyring
    bar: Bar


def run_rotate(environment: Environment, interruption: Interruption, plan: Plan) -> None:
    """Rotates while everything goes on serving; run again, it goes on where it was interrupted."""

    async def rotate(servers: Servers, bar: Bar) -> None:
        async with _open(environment, servers, bar) as keys:
            await _rotate(keys, plan)

    with open_servers(environment) as servers, show_progress("Reading the keys") as bar:
        interruption.run(rotate(servers, bar))


def run_status(environment: Environment, interruption: Interruption) -> None:
    """Prints each root key and what it wraps."""

    async def tell(servers: Servers, bar: Bar) -> None:
        async with _open(environment, servers, bar) as keys:
            await _tell(keys)

    with open_servers(environment) as servers, show_progress("Reading the keys") as bar:
        interruption.run(tell(servers, bar))


@asynccontextmanager
async def _open(environment: Environment, servers: Servers, bar: Bar) -> AsyncIterator[_Keys]:
    from storage.database import Database
    from storage.encryption.keyring import Keyring
    from storage.errors import StorageError
    from storage.schema import check_revision

    settings = read_settings(environment, servers)
    database = Database.for_service(settings, pool_size=2)
    try:
        await check_revision(database)
        yield _Keys(database, Keyring.from_settings(settings), bar)
    except StorageError as error:
        reason = str(error)
        raise ServerError(f"{reason[:1].upper()}{reason[1:]}.") from error
    finally:
        await database.close()


async def _rotate(keys: _Keys, plan: Plan) -> None:
    from storage.encryption.rotation import exclusive_rotation, read_root_keys
    from storage.encryption.tenant_rotation import Cause

    cause = Cause("operator:cli", "cli")
    async with exclusive_rotation(keys.database) as allowed:
        if not allowed:
            raise OpsError("Keys are being rotated by another process already; wait for its end, or stop it.")
        chosen = await _choose_tenants(keys.database, plan)
        found = await read_root_keys(keys.database, keys.keyring.provider, keys.bar.advance_to)
        if plan.dry_run:
            await _announce(keys, plan, found, chosen)
            return
        if plan.root:
            await _rotate_root(keys, found, cause, anew=plan.anew)
        await _rotate_tenants(keys, chosen, cause)
        if plan.destroy_old:
            await _destroy_old(keys, found, cause)


async def _rotate_root(keys: _Keys, found: RootKeys, cause: Cause, *, anew: bool) -> None:
    from storage.encryption.rotation import rotate_root

    follow = found.outdated and not anew
    keys.bar.step("Wrapping under the root key" if follow else "Wrapping under a new root key")
    current = await rotate_root(keys.database, keys.keyring, found, cause, keys.bar.advance_to, anew=anew)
    keys.bar.say(f"Everything is under the root key {current}.")


async def _rotate_tenants(keys: _Keys, chosen: list[UUID], cause: Cause) -> None:
    from storage.encryption.tenant_rotation import rotate_tenant

    if not chosen:
        return
    keys.bar.step("Giving tenants new keys")
    moved = 0
    for done, tenant in enumerate(chosen, start=1):
        moved += await rotate_tenant(keys.database, keys.keyring, tenant, cause)
        keys.bar.advance_to(done, len(chosen))
    keys.bar.say(f"{_number(moved, 'data key')} wrapped anew under new tenant keys; the old ones are destroyed.")


async def _destroy_old(keys: _Keys, found: RootKeys, cause: Cause) -> None:
    from storage.encryption.rotation import destroy_old_root_keys

    keys.bar.step("Destroying old root keys")
    destroyed = await destroy_old_root_keys(keys.database, keys.keyring.provider, found, cause)
    for key in destroyed:
        keys.bar.say(f"The root key {key} is destroyed.")
    if not destroyed:
        keys.bar.say("No older root key is left that nothing is under.")


async def _announce(keys: _Keys, plan: Plan, found: RootKeys, chosen: list[UUID]) -> None:
    from storage.encryption.tenant_rotation import count_data_keys

    wrapped = found.tenant_keys + found.signing_keys
    if plan.root and found.outdated and not plan.anew:
        keys.bar.say(f"Would wrap {_number(found.outdated, 'key')} anew under the root key {found.current}.")
    elif plan.root:
        keys.bar.say(f"Would make a new root key and wrap {_number(wrapped.total(), 'key')} anew under it.")
    for tenant in chosen:
        if count := await count_data_keys(keys.database, tenant):
            keys.bar.say(f"Would give tenant {tenant} a new key and wrap {_number(count, 'data key')} anew under it.")


async def _tell(keys: _Keys) -> None:
    from storage.encryption.rotation import read_root_keys

    provider = keys.keyring.provider
    found = await read_root_keys(keys.database, provider, keys.bar.advance_to)
    known = await asyncio.to_thread(provider.known_root_keys)
    for key in dict.fromkeys([*known, *sorted(found.in_use)]):
        wraps = f"{_number(found.tenant_keys[key], 'tenant key')}, {_number(found.signing_keys[key], 'signing key')}"
        keys.bar.say(f"{key}  {'current' if key == found.current else 'older  '}  wraps {wraps}")


async def _choose_tenants(database: Database, plan: Plan) -> list[UUID]:
    """Raises UsageFault when there is no such tenant."""
    from sqlalchemy import or_, select

    from storage.encryption.rotation import list_tenants
    from storage.tables import tenants

    if not plan.tenants:
        return []
    if not plan.tenant:
        return await list_tenants(database)
    wanted = [tenants.c.name == plan.tenant]
    with suppress(ValueError):
        wanted.append(tenants.c.id == UUID(plan.tenant))
    async with database.transaction(operator=True) as connection:
        found = (await connection.execute(select(tenants.c.id).where(or_(*wanted)))).scalars().all()
    if len(found) != 1:
        raise UsageFault(f"There is no tenant with the name or id {plan.tenant!r}.")
    return list(found)


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
