"""One relay for all the tests of a module, and a clean table for each of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import redis
from psycopg import sql

from storage.settings import Settings
from tests.conftest import RunningStack, StartStack, run_stacks
from tests.databases import lend_settings
from tests.storage.catalogue import SHARED
from timbrelay.stack.servers import Servers


@dataclass(frozen=True, slots=True)
class Shared:
    """A relay alone with a database of its own, and what Valkey holds while it has had nothing to do."""

    settings: Settings
    stack: RunningStack
    keys: frozenset[bytes]

    def empty(self) -> None:
        """No tenant is there any more, and nothing of theirs."""
        ours = "schemaname IN ('public', 'keyring') AND schemaname || '.' || tablename <> ALL (%s)"
        query = f"SELECT schemaname, tablename FROM pg_tables WHERE {ours}"  # noqa: S608
        with psycopg.connect(self.settings.owner_url, autocommit=True) as connection:
            found = connection.execute(query, [list(SHARED)]).fetchall()
            tables = sql.SQL(", ").join(sql.Identifier(*names) for names in found)
            # The audit log can only grow, for whoever minds its trigger.
            connection.execute("SET session_replication_role = 'replica'")
            connection.execute(sql.SQL("TRUNCATE {}").format(tables))
        with redis.Redis.from_url(self.settings.redis_url) as client:
            for key in set(client.scan_iter()) - self.keys:
                client.delete(key)


@contextlib.contextmanager
def share(
    servers: Servers, variables: dict[str, str], folder: Path, start: Callable[[StartStack], RunningStack]
) -> Iterator[Shared]:
    """What `start` has started, for as long as this lasts."""
    with lend_settings(servers) as lent, run_stacks(servers, lent, variables, folder) as start_stack:
        stack = start(start_stack)
        with redis.Redis.from_url(lent.redis_url) as client:
            keys = frozenset(client.scan_iter())
        yield Shared(lent, stack, keys)
