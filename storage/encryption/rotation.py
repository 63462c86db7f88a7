"""A new root key: every tenant key, and the service's signing key, is wrapped anew under it.

What is left to do can be seen in the tables, so it goes on wherever it was killed: as long as anything is under
another root key than the provider's current one, no further root key is made. A wrapped key is only ever updated, and
only where it still is what was read, and never inserted: one that is destroyed meanwhile stays destroyed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Row, Table, func, select, update

from storage.database import Database
from storage.encryption.envelope import Kind, Label
from storage.encryption.keyring import Keyring
from storage.encryption.locks import await_root_key_holders, claim_rotation
from storage.encryption.providers import KeyProvider, WrappedKey
from storage.encryption.tenant_rotation import Cause
from storage.errors import DecryptionError, RootKeyError, ServerUnavailable
from storage.evidence.audit import PLATFORM, Act, append
from storage.evidence.signing import label_of
from storage.tables import signing_keys, tenant_keys
from storage.tenancy.tenants import walk_tenants

BATCH = 100
_PASSES = 100
_FAILURES_LIMIT = 100
_NAMED_LIMIT = 16
"""How many root keys an entry of the audit log can name."""

Report = Callable[[int, int], None]
"""Is told how many tenants are done, and of how many."""


@dataclass(frozen=True, slots=True)
class RootKeys:
    """Which root keys there are, and what they wrap."""

    current: str
    tenant_keys: Counter[str]
    """How many tenant keys each root key wraps, by its id."""
    signing_keys: Counter[str]

    @property
    def in_use(self) -> set[str]:
        """The ids of those that wrap anything."""
        return {*self.tenant_keys, *self.signing_keys}

    @property
    def outdated(self) -> int:
        """How many keys are under another root key than the current one."""
        return sum(count for key, count in (self.tenant_keys + self.signing_keys).items() if key != self.current)


@asynccontextmanager
async def exclusive_rotation(database: Database) -> AsyncIterator[bool]:
    """Whether this process may rotate keys, False while another does; takes a connection for as long as it lasts."""
    async with database.transaction(operator=True) as connection:
        yield await claim_rotation(connection)


async def list_tenants(database: Database) -> list[UUID]:
    """Every tenant, deleted ones too, and the service itself, which may have keys like one."""
    return [PLATFORM, *[tenant async for tenant in walk_tenants(database, deleted=True)]]


async def read_root_keys(database: Database, provider: KeyProvider, report: Report) -> RootKeys:
    """Count what every root key wraps, tenant by tenant; raises RootKeyError or ServerUnavailable."""
    current = await asyncio.to_thread(lambda: provider.root_key_id)
    counted: Counter[str] = Counter()
    known = await list_tenants(database)
    for done, tenant in enumerate(known, start=1):
        counted += await _count(database, tenant_keys, tenant)
        report(done, len(known))
    return RootKeys(current, counted, await _count(database, signing_keys, PLATFORM))


async def rotate_root(
    database: Database, keyring: Keyring, found: RootKeys, cause: Cause, report: Report, *, anew: bool = False
) -> str:
    """Wrap everything under a new root key, or under the current one when something is not under it (unless `anew`).

    `found` is what `read_root_keys` gave. Returns the id of the root key that wraps everything now. Raises what the
    provider raises, RootKeyError with what to do where a new root key is not ours to make; to be called again then. A
    tenant whose key does not open does not keep the others from the new root key: it is told at the end.
    """
    provider = keyring.provider
    follow = found.outdated and not anew
    current = found.current if follow else await asyncio.to_thread(provider.make_root_key)
    # Whoever wrapped under the one before, and has not stored it yet, could not be seen.
    async with database.transaction(operator=True) as connection:
        await await_root_key_holders(connection)
    rewrapped, known = 0, await list_tenants(database)
    failed: list[DecryptionError | RootKeyError] = []
    for done, tenant in enumerate(known, start=1):
        try:
            rewrapped += await _rewrap_all(database, provider, tenant_keys, tenant, current)
        except (DecryptionError, RootKeyError) as error:
            failed.append(error)
            if len(failed) == _FAILURES_LIMIT:
                raise
        report(done, len(known))
    signing = await _rewrap_all(database, provider, signing_keys, PLATFORM, current)
    detail = {"root_key": current, "replaced": _name(found.in_use - {current}), "tenant_keys": rewrapped}
    await _record(database, cause, current, {**detail, "signing_keys": signing, "failed": len(failed)})
    if failed:
        raise failed[0]
    return current


async def destroy_old_root_keys(database: Database, provider: KeyProvider, found: RootKeys, cause: Cause) -> list[str]:
    """Destroy the root keys that wrap nothing any more, of those in `found` and those that the provider knows of.

    The intention is put on record first. Returns their ids; raises what the provider raises.
    """
    now = await read_root_keys(database, provider, lambda *_: None)
    candidates = [*await asyncio.to_thread(provider.known_root_keys), *sorted(found.in_use)]
    old = [key for key in dict.fromkeys(candidates) if key != now.current and key not in now.in_use]
    if old:
        await _record(database, cause, now.current, {"root_key": now.current, "destroying": _name(set(old))})
    for key in old:
        await asyncio.to_thread(provider.destroy_root_key, key)
    return old


async def _count(database: Database, table: Table, tenant: UUID) -> Counter[str]:
    query = select(table.c.root_key_id, func.count().label("wraps")).where(table.c.wrapped_key.is_not(None))
    async with database.transaction(tenant=tenant) as connection:
        rows = (await connection.execute(query.group_by(table.c.root_key_id))).all()
    return Counter({row.root_key_id: row.wraps for row in rows})


async def _rewrap_all(database: Database, provider: KeyProvider, table: Table, tenant: UUID, current: str) -> int:
    """Wrap anew what is not under the current root key; returns how much it was."""
    query = select(table).where(table.c.wrapped_key.is_not(None), table.c.root_key_id != current).limit(BATCH)
    rewrapped = 0
    for _ in range(_PASSES):
        async with database.transaction(tenant=tenant) as connection:
            rows = (await connection.execute(query)).all()
        if not rows:
            return rewrapped
        for row in rows:
            rewrapped += await _rewrap(database, provider, table, tenant, row, current)
    raise ServerUnavailable("Postgres", f"the keys of tenant {tenant} change all the time; run the rotation again")


async def _rewrap(
    database: Database, provider: KeyProvider, table: Table, tenant: UUID, row: Row[Any], current: str
) -> int:
    """Outside of any transaction, since the provider may take its time, and then only if the row is still the same."""
    label = label_of(row.id) if table is signing_keys else Label(tenant, row.id, Kind.TENANT_KEY)
    try:
        key = await asyncio.to_thread(provider.unwrap, WrappedKey(row.root_key_id, row.wrapped_key), label)
    except DecryptionError as error:
        raise DecryptionError(f"{label.kind} of tenant {tenant}") from error
    wrapped = await asyncio.to_thread(provider.wrap, key, label)
    if wrapped.root_key_id != current:
        raise ServerUnavailable(
            "the key provider", f"it still wraps with {wrapped.root_key_id}, not {current}; run the rotation again"
        )
    changed = (
        update(table)
        .where(table.c.id == row.id, table.c.wrapped_key == row.wrapped_key)
        .values(wrapped_key=wrapped.ciphertext, root_key_id=current)
    )
    async with database.transaction(tenant=tenant) as connection:
        return (await connection.execute(changed)).rowcount


async def _record(database: Database, cause: Cause, root_key_id: str, detail: dict[str, Any]) -> None:
    act = Act(cause.actor, "keys.root_rotated", "root_key", root_key_id, cause.origin, detail)
    async with database.transaction(tenant=PLATFORM) as connection:
        await append(connection, PLATFORM, act)


def _name(keys: set[str]) -> list[str]:
    return sorted(keys)[:_NAMED_LIMIT]
