"""A running relay for the API, with a key of every kind; no worker and no Celery is needed for any of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any

import httpx2
import psycopg
import pytest
import redis
from psycopg import sql

from storage.database import Database
from storage.redis import WORKERS, worker_key
from storage.settings import Settings
from storage.streams.presence import WorkerLoad
from storage.tenancy.api_keys import Scope, create_key
from tests.conftest import MakeTenant, RunningStack, StartStack, Tenant, run_stacks
from tests.databases import lend_settings
from tests.storage.catalogue import SHARED
from timbrelay.stack.servers import Servers

CONSENT = {
    "signer": "A. Person",
    "statement": "I agree that my voice is cloned.",
    "statement_version": "2026-11",
    "language": "en-GB",
    "purpose": "reading the news",
}
RECORDING = ("a.wav", b"RIFF....", "audio/wav")
PROBLEM = {"type", "title", "status", "detail", "code", "field", "retryable"}
EMBEDDING = bytes(1024)

Http = httpx2.AsyncClient


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


@pytest.fixture(scope="module")
def shared(
    servers: Servers, clean_variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shared]:
    """The one relay of a module."""
    folder = tmp_path_factory.mktemp("shared")
    with lend_settings(servers) as lent, run_stacks(servers, lent, clean_variables, folder) as start:
        stack = start_relay(start)
        with redis.Redis.from_url(lent.redis_url) as client:
            keys = frozenset(client.scan_iter())
        yield Shared(lent, stack, keys)


@pytest.fixture
def settings(request: pytest.FixtureRequest) -> Settings:
    """The test's own, or in a module that says `ONE_RELAY = True`, those of its relay, without any tenant."""
    if not getattr(request.module, "ONE_RELAY", False):
        own: Settings = request.getfixturevalue("settings")
        return own
    shared: Shared = request.getfixturevalue("shared")
    shared.empty()
    return shared.settings


@pytest.fixture
def stack(request: pytest.FixtureRequest, settings: Settings) -> RunningStack:
    """A relay alone, which became ready by a worker that is not there; the module's, if there is one."""
    if getattr(request.module, "ONE_RELAY", False):
        shared: Shared = request.getfixturevalue("shared")
        return shared.stack
    return start_relay(request.getfixturevalue("start_stack"))


def start_relay(start_stack: StartStack, **changed: Any) -> RunningStack:
    """The same with other settings."""
    changed.setdefault("max_recording_bytes", 64 * 1024)
    stack = start_stack(only=(), workers=1, **changed)
    announce_nobody(stack)
    stack.start("relay")
    stack.wait_ready()
    with redis.Redis.from_url(stack.services.variables["REDIS_URL"]) as client:
        # It has served its purpose, and would never say that it has forgotten a voice.
        client.srem(WORKERS, "none")
        client.delete(worker_key("none"))
    return stack


def announce_nobody(stack: RunningStack) -> None:
    """A worker is there that will never say that it has forgotten a voice."""
    with redis.Redis.from_url(stack.services.variables["REDIS_URL"]) as client:
        client.sadd(WORKERS, "none")
        client.set(worker_key("none"), json.dumps(asdict(WorkerLoad(8, 0, 0.0))))


@asynccontextmanager
async def knock(stack: RunningStack, key: str | None, **headers: str) -> AsyncIterator[Http]:
    """A client of the relay with this key."""
    given = headers if key is None else {"Authorization": f"Bearer {key}", **headers}
    async with httpx2.AsyncClient(base_url=stack.relay_url, headers=given, timeout=30) as client:
        yield client


@pytest.fixture
async def acme(make_tenant: MakeTenant) -> Tenant:
    """A tenant with a key of all scopes."""
    return await make_tenant("acme")


@pytest.fixture
async def other(make_tenant: MakeTenant) -> Tenant:
    """Another tenant."""
    return await make_tenant("other")


@pytest.fixture
async def http(stack: RunningStack, acme: Tenant) -> AsyncIterator[Http]:
    """The tenant's client."""
    async with knock(stack, acme.key) as client:
        yield client


@pytest.fixture
async def stranger(stack: RunningStack, other: Tenant) -> AsyncIterator[Http]:
    """The other tenant's client."""
    async with knock(stack, other.key) as client:
        yield client


@pytest.fixture
async def operator_key(database: Database) -> str:
    """A key of the operator."""
    async with database.transaction(operator=True) as connection:
        _, key = await create_key(connection, None, name="test", scopes=[Scope.OPERATOR], expires_at=None)
    return key.get_secret_value()


@pytest.fixture
async def operator(stack: RunningStack, operator_key: str) -> AsyncIterator[Http]:
    """The operator's client."""
    async with knock(stack, operator_key) as client:
        yield client


Grant = Callable[..., Awaitable[str]]


@pytest.fixture
def grant(http: Http) -> Grant:
    """`await grant()`: the id of a consent of the tenant."""

    async def make(client: Http = http, **changed: Any) -> str:
        answer = await client.post("/v1/consents", json={**CONSENT, **changed})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    return make


Enrol = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture
def enrol(http: Http, grant: Grant) -> Enrol:
    """`await enrol()`: a pending voice of the tenant, as it was answered."""

    async def make(name: str = "demo", consent: str | None = None) -> dict[str, Any]:
        form = {"name": name, "consent": consent or await grant()}
        answer = await http.post("/v1/voices", data=form, files={"recording": RECORDING})
        assert answer.status_code == 202, answer.text
        body: dict[str, Any] = answer.json()
        return body

    return make


async def read_actions(http: Http) -> list[str]:
    """The actions of the tenant's audit log, in order."""
    answer = await http.get("/v1/admin/audit", params={"limit": 100})
    return [entry["action"] for entry in answer.json()["entries"]]


def check_problem(answer: httpx2.Response, status: int, code: str, field: str | None = None) -> dict[str, Any]:
    """The problem that an answer is, after its form was looked at."""
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    problem: dict[str, Any] = answer.json()
    assert set(problem) - {"retry_after_ms"} == PROBLEM
    assert (problem["status"], problem["code"], problem["field"]) == (status, code, field), problem
    assert problem["type"] == f"/v1/problems/{code}"
    return problem
