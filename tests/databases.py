"""A database for each test, and where the servers of a run keep what they have."""

from __future__ import annotations

import base64
import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import redis
from psycopg import sql
from sqlalchemy import make_url

from storage.settings import Settings
from timbrelay.environment import Environment
from timbrelay.stack.servers import Servers

MEMORY = Path("/dev/shm")
ROOM_BYTES = 2**30
"""What the servers of a whole run need at most: the log of Postgres, one database at a time, and Valkey."""


def find_room() -> Path | None:
    """Memory, where there is enough: a busy disk takes a third of a second for each test's database. None: a disk."""
    usable = MEMORY.is_dir() and os.access(MEMORY, os.W_OK | os.X_OK) and shutil.disk_usage(MEMORY).free >= ROOM_BYTES
    return MEMORY if usable else None


@contextlib.contextmanager
def lend_settings(servers: Servers) -> Iterator[Settings]:
    """Settings with a fresh, migrated database, an empty Valkey and a root key."""
    name = f"test_{secrets.token_hex(6)}"
    with psycopg.connect(_with_database(servers.database_owner_url, "postgres"), autocommit=True) as connection:
        template = make_url(servers.database_owner_url).database or ""
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template))
        )
        with redis.Redis.from_url(servers.redis_url) as client:
            client.flushall()
        yield Settings.model_validate(
            {
                "DATABASE_URL": _with_database(servers.database_url, name),
                "DATABASE_OWNER_URL": _with_database(servers.database_owner_url, name),
                "REDIS_URL": servers.redis_url,
                "root_key": base64.b64encode(secrets.token_bytes(32)).decode(),
                "bundle": Environment.read({}).root / "bundles" / "base",
            }
        )
        _drop_database(connection, name)


def _drop_database(connection: psycopg.Connection, name: str) -> None:
    """Postgres itself would look only every tenth of a second whether the last session of a database has ended."""
    end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = %s"
    for _ in range(1000):
        if connection.execute(end, [name]).fetchone() == (0,):
            break
        time.sleep(0.002)
    connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def _with_database(url: str, name: str) -> str:
    return make_url(url).set(database=name).render_as_string(hide_password=False)
