"""What is measured: the ways to storage that requests and sentences wait for."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.paging import Page
from storage.tenancy.api_keys import authenticate
from storage.voices.versions import load_embedding
from storage.voices.voices import find_speaker, list_voices
from timbrelay.benchmark.storage.population import Resident
from timbrelay.errors import OpsError

PAGE_LIMIT = 100
_DEEP_PAGES = 50


@dataclass(frozen=True, slots=True)
class Operation:
    """One way to storage, as its callers go it: a transaction with what sets it up and ends it."""

    name: str
    limit_ms: float
    """The 95th percentile that it must not exceed: in the database, or with `whole` from the call to its answer."""
    whole: bool
    act: Callable[[], Awaitable[None]]


def plan_operations(
    database: Database, keyring: Keyring, residents: list[Resident], chance: random.Random
) -> list[Operation]:
    """The operations over a population; each act takes another tenant, key, alias or voice by chance."""
    largest = residents[0]
    depth: list[Page] = [Page(PAGE_LIMIT)]

    async def check_key() -> None:
        _require(await authenticate(database, chance.choice(chance.choice(residents).keys)))

    async def look_up_alias() -> None:
        resident = chance.choice(residents)
        async with database.transaction(tenant=resident.id) as connection:
            _require(await find_speaker(connection, resident.id, chance.choice(resident.aliases)))

    async def list_first() -> None:
        async with database.transaction(tenant=largest.id) as connection:
            _require((await list_voices(connection, largest.id, Page(PAGE_LIMIT))).items)

    async def list_deep() -> None:
        async with database.transaction(tenant=largest.id) as connection:
            found = await list_voices(connection, largest.id, depth[-1])
        _require(found.items)
        # Ever deeper, and then from the start again.
        depth.append(Page(PAGE_LIMIT, found.after if len(depth) < _DEEP_PAGES else None))
        if depth[-1].after is None:
            depth.clear()
            depth.append(Page(PAGE_LIMIT))

    async def fetch_embedding() -> None:
        resident = chance.choice(residents)
        async with database.transaction(tenant=resident.id) as connection:
            _require(await load_embedding(connection, keyring, resident.id, chance.choice(resident.voices), 1))

    return [
        Operation("authentication", 5.0, False, check_key),
        Operation("look-up by alias", 5.0, False, look_up_alias),
        Operation(f"list, first page of {PAGE_LIMIT}", 5.0, False, list_first),
        Operation(f"list, pages 1 to {_DEEP_PAGES}", 5.0, False, list_deep),
        Operation("embedding, fetched and decrypted", 3.0, True, fetch_embedding),
    ]


def _require(found: object) -> None:
    """A benchmark of answers that were not given would be a fast one."""
    if not found:
        raise OpsError("The benchmark's database does not hold what was put into it.")
