"""A running relay for the API, with a key of every kind; no worker and no Celery is needed for any of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
import redis

from storage.database import Database
from storage.redis import WORKERS, worker_key
from storage.settings import Settings
from storage.tenancy.api_keys import Scope, create_key
from tests.conftest import MakeTenant, RunningStack, StartStack, Tenant
from tests.relay.conftest import announce_nobody as announce
from tests.relay.conftest import start_lone_relay
from tests.relay.sharing import Shared, share
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


@pytest.fixture(scope="module")
def shared(
    servers: Servers, clean_variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shared]:
    """The one relay of a module."""
    folder = tmp_path_factory.mktemp("shared")
    with share(servers, clean_variables, folder, start_relay) as lent:
        yield lent


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
    stack = start_lone_relay(start_stack, **changed)
    with redis.Redis.from_url(stack.services.variables["REDIS_URL"]) as client:
        # It has served its purpose, and would never say that it has forgotten a voice.
        client.srem(WORKERS, "none")
        client.delete(worker_key("none"))
    return stack


def announce_nobody(stack: RunningStack) -> None:
    """A worker is there that will never say that it has forgotten a voice."""
    announce(stack.services.variables["REDIS_URL"])


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
