"""Everything that a running stack leaves lying around, gathered for a search."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import redis
from psycopg import sql
from sqlalchemy import make_url

from storage.settings import Settings
from tests.conftest import RunningStack
from timbrelay.stack.servers import Servers

Places = dict[str, bytes]

_TABLES = (
    "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE c.relkind IN ('r', 'p', 'm') AND n.nspname NOT IN ('pg_catalog', 'information_schema')"
    " AND n.nspname NOT LIKE 'pg_toast%' ORDER BY 1, 2"
)


@dataclass(frozen=True, slots=True)
class Leavings:
    """Where a stack on the test's servers leaves anything."""

    stack: RunningStack
    settings: Settings
    servers: Servers
    temporary: Path
    """The temporary folder of its processes."""

    def gather(self) -> Places:
        """Tables, files of Postgres, keys and files of Valkey, logs, metrics, temporary files, by a name for each."""
        return {**self.tables(), **self.database_files(), **self.redis(), **self.files(), **self.metrics()}

    def tables(self) -> Places:
        """Every row of every table as the superuser sees it: as text, and in the binary form."""
        places: Places = {}
        url = make_url(self.settings.owner_url).set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(url, autocommit=True) as connection:
            assert connection.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user").fetchone() == (
                True,
            )
            for schema, table in connection.execute(_TABLES).fetchall():
                for form in ("text", "binary"):
                    query = sql.SQL("COPY {} TO STDOUT (FORMAT {})").format(
                        sql.Identifier(schema, table), sql.SQL(form)
                    )
                    with connection.cursor().copy(query) as rows:
                        places[f"table {schema}.{table} as {form}"] = b"".join(bytes(row) for row in rows)
        return places

    def database_files(self) -> Places:
        """Heap, indexes and TOAST of this database, and the write-ahead log of the server, after a checkpoint."""
        assert self.servers.postgres is not None
        url = make_url(self.settings.owner_url).set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CHECKPOINT")
            row = connection.execute("SELECT oid FROM pg_database WHERE datname = current_database()").fetchone()
        assert row is not None
        home = self.servers.postgres.folder
        return dict(_read(home, f"base/{row[0]}/*", "pg_wal/*", "global/*", "pg_stat*/*", "base/pgsql_tmp/*"))

    def redis(self) -> Places:
        """Every key with its value, whatever its type, and the server's own files."""
        assert self.servers.postgres is not None
        places: Places = {}
        with redis.Redis.from_url(self.settings.redis_url) as client:
            for key in client.scan_iter(count=1000):
                places[f"key {key.decode()}"] = key + b" " + _value(client, key)
        return {**places, **dict(_read(self.servers.postgres.folder.parent / "valkey", "**/*"))}

    def files(self) -> Places:
        """The logs of all processes, temporary files, and cores."""
        assert self.servers.postgres is not None
        places = dict(_read(self.temporary, "**/*"))
        for folder in (self.stack.services.root, self.servers.postgres.folder):
            places |= dict(_read(folder, "core*"))
        for log in (self.stack.log, self.servers.postgres.folder.parent / "stack.log"):
            places[f"log {log}"] = log.read_bytes()
        return places

    def metrics(self) -> Places:
        """What relay and workers tell Prometheus."""
        urls = self.stack.metrics_urls
        return {f"metrics of {name}": httpx2.get(f"{url}/metrics").content for name, url in urls.items()}


def _read(folder: Path, *patterns: str) -> Iterator[tuple[str, bytes]]:
    for pattern in patterns:
        for path in sorted(folder.glob(pattern)):
            try:
                if path.is_file():
                    yield f"file {path.relative_to(folder.parent)}", path.read_bytes()
            except FileNotFoundError:
                continue


def _value(client: Any, key: bytes) -> bytes:
    """Whatever a key holds, read with the command for its type."""
    match client.type(key).decode():
        case "string":
            return bytes(client.get(key) or b"")
        case "list":
            return b"\n".join(client.lrange(key, 0, -1))
        case "set":
            return b"\n".join(client.smembers(key))
        case "zset":
            return b"\n".join(client.zrange(key, 0, -1))
        case "hash":
            return b"\n".join(part for pair in client.hgetall(key).items() for part in pair)
        case "stream":
            entries = (fields.items() for _, fields in client.xrange(key))
            return b"\n".join(part for pairs in entries for pair in pairs for part in pair)
        case "none":
            return b""
        case kind:
            raise AssertionError(f"{key!r} is of the type {kind}, which nobody has read")
