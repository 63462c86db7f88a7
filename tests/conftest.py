"""Real servers for every test that asks: Postgres and Valkey are started once, each test gets a database of its own.

`settings` is what a process of ours reads from its environment; `start_stack` runs the processes themselves.
`DATABASE_URL` and `REDIS_URL` of whoever runs the tests are never touched: the tests empty what they use.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import redis
from pydantic import SecretStr

from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.settings import Settings
from storage.tenancy.api_keys import Scope, create_key
from storage.tenancy.tenants import create_tenant, find_tenant_named
from storage.voices.consents import Statement, Terms, grant_consent
from storage.voices.versions import Enrolled, complete_enrolment
from storage.voices.voices import create_voice
from tests.databases import find_room, lend_settings
from timbrelay.environment import Environment
from timbrelay.stack.folder import DataFolder
from timbrelay.stack.local import is_ready, wait_ready
from timbrelay.stack.process import Process
from timbrelay.stack.schema import ensure_schema
from timbrelay.stack.servers import Servers, run_servers
from timbrelay.stack.services import Ports, Services, worker_name
from timbrelay.stack.supervisor import Supervisor, Tier

DEADLINE_S = 30.0
TENANT_SCOPES = (Scope.SPEAK, Scope.ENROL, Scope.ADMIN)
TERMS = Terms("2026-11", "en", "voice cloning", None)
STATEMENT = Statement("A. Person", "I agree.")
_OURS = ("TIMBRELAY_", "DATABASE_", "REDIS_URL")
collect_ignore = ["clients"]
"""They run in an environment of their own: tests/dialects/test_clients.py starts them."""


def wait_until(condition: Callable[[], object], deadline_s: float = DEADLINE_S) -> None:
    """Returns when the condition holds; fails the test at the deadline."""
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"not within {deadline_s} s: {condition}"
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(_OURS):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def clean_variables() -> dict[str, str]:
    """The environment without anything that is meant for Timbrelay."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}


@pytest.fixture(scope="session")
def servers(clean_variables: dict[str, str]) -> Iterator[Servers]:
    """Our own Postgres (migrated, fsync off) and Valkey on temporary data."""
    # Not in pytest's own temporary folder: where it has to run as nobody, Postgres could not enter that.
    home = Path(tempfile.mkdtemp(prefix="timbrelay-test-", dir=find_room()))
    try:
        environment = Environment.read({**clean_variables, "TIMBRELAY_HOME": str(home)})
        folder = DataFolder(home)
        folder.prepare()
        with folder.lock(), run_servers(environment, folder, Supervisor(folder.log), durable=False) as started:
            ensure_schema(started, environment)
            yield started
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def settings(servers: Servers) -> Iterator[Settings]:
    """The test's own."""
    with lend_settings(servers) as lent:
        yield lent


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant with a key that works."""

    id: UUID
    key_id: UUID
    key: str


MakeTenant = Callable[..., Awaitable[Tenant]]
MakeVoice = Callable[..., Awaitable[UUID]]


@pytest.fixture
def make_tenant(database: Database) -> MakeTenant:
    """`await make_tenant("acme", scopes=("speak",))` in the database of `settings`; each call makes another key."""

    async def make(name: str, *, scopes: Iterable[str] = TENANT_SCOPES) -> Tenant:
        async with database.transaction(operator=True) as connection:
            tenant = await find_tenant_named(connection, name) or await create_tenant(connection, name)
            granted = map(Scope, scopes)
            made, key = await create_key(connection, tenant.id, name="test", scopes=granted, expires_at=None)
        return Tenant(tenant.id, made.id, key.get_secret_value())

    return make


@pytest.fixture
async def database(settings: Settings) -> AsyncIterator[Database]:
    """The database of `settings`, as the services see it."""
    opened = Database.for_service(settings)
    yield opened
    await opened.close()


@pytest.fixture
def keyring(settings: Settings) -> Keyring:
    """A keyring under the root key of `settings`."""
    return Keyring.from_settings(settings)


@pytest.fixture
def make_voice(database: Database, keyring: Keyring) -> MakeVoice:
    """`await make_voice(tenant)`: a pending voice; with `embedding=` a ready one, without the work of an enrolment."""

    async def make(tenant: UUID, *, upload: bytes = b"upload", embedding: bytes = b"", name: str = "demo") -> UUID:
        async with database.transaction(tenant=tenant) as connection:
            consent = await grant_consent(connection, keyring, tenant, TERMS, STATEMENT)
            voice = await create_voice(connection, keyring, tenant, name=name, consent=consent.id, upload=upload)
            assert voice is not None
            if embedding:
                content = Enrolled(b"recording", embedding, 6.0, 90, {})
                await complete_enrolment(connection, keyring, tenant, voice.id, 1, content)
        return voice.id

    return make


@dataclass(slots=True)
class RunningStack:
    """Processes of ours on the test's servers. Nothing is restarted unless the test does it."""

    services: Services
    supervisor: Supervisor
    valkey: Process | None
    processes: dict[str, Process] = field(default_factory=dict)

    @property
    def relay_url(self) -> str:
        return self.services.ports.relay_url

    @property
    def metrics_urls(self) -> dict[str, str]:
        return self.services.ports.metrics_urls

    @property
    def log(self) -> Path:
        return self.supervisor.log

    def start(self, name: str) -> Process:
        """Starts `relay`, `celery`, `worker`, `worker-2`, ..., or starts it again."""
        if name in self.processes:
            self.processes[name].start()
            return self.processes[name]
        workers = {worker_name(index): index for index in range(len(self.services.ports.worker_metrics))}
        if name in workers:
            self.processes[name] = self.supervisor.start(self.services.worker(workers[name]), Tier.SERVICES)
        else:
            command = {"relay": self.services.relay, "celery": self.services.celery}[name]()
            self.processes[name] = self.supervisor.start(command, Tier.SERVICES)
        return self.processes[name]

    def wait_ready(self) -> None:
        """Until every process with a `/readyz` that was started answers 200 there."""
        if set(self.metrics_urls) <= set(self.processes):
            wait_ready(self.services.ports, self.supervisor)
        for name in set(self.metrics_urls) & set(self.processes):
            wait_until(functools.partial(is_ready, self.metrics_urls[name]))

    def kill(self, name: str) -> None:
        """`kill -9`, and waits for the end."""
        self.processes[name].kill()

    def pause(self, name: str) -> None:
        """`kill -STOP`."""
        os.kill(self.processes[name].pid, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """`kill -CONT`."""
        os.kill(self.processes[name].pid, signal.SIGCONT)

    def restart_valkey(self, *, kill: bool = False) -> None:
        """Ends Valkey, in order or with `kill -9`, and starts it on the same data; returns when it answers."""
        assert self.valkey is not None
        if kill:
            self.valkey.kill()
        self.valkey.ask_to_stop()
        assert self.valkey.wait(DEADLINE_S)
        self.valkey.start()
        wait_until(lambda: _answers(self.services.variables["REDIS_URL"]))


StartStack = Callable[..., RunningStack]


@contextlib.contextmanager
def run_stacks(servers: Servers, settings: Settings, variables: dict[str, str], folder: Path) -> Iterator[StartStack]:
    """What starts stacks with these settings, and ends them all afterwards. `variables` are the machine's."""
    supervisors: list[Supervisor] = []

    def start(*, workers: int = 1, only: tuple[str, ...] | None = None, **changed: Any) -> RunningStack:
        # A machine that does other work beside the tests holds few listeners, and would refuse those that a test wants.
        changed.setdefault("worker_capacity", 100)
        log = folder / f"stack-{len(supervisors)}.log"
        supervisors.append(Supervisor(log))
        services = _plan(servers, settings.model_copy(update=changed), variables, folder, workers)
        stack = RunningStack(services, supervisors[-1], servers.valkey)
        names = only if only is not None else (*map(worker_name, range(workers)), "relay", "celery")
        for name in names:
            stack.start(name)
        stack.wait_ready()
        return stack

    try:
        yield start
    finally:
        for supervisor in supervisors:
            supervisor.stop()


@pytest.fixture
def start_stack(
    servers: Servers, settings: Settings, clean_variables: dict[str, str], tmp_path: Path
) -> Iterator[StartStack]:
    """`start_stack(workers=2, send_timeout_s=1)` runs a relay, workers and Celery with the test's settings.

    Further arguments are fields of the settings; `only=("relay",)` starts just those. Returns when all are ready.
    """
    with run_stacks(servers, settings, clean_variables, tmp_path) as start:
        yield start


def _plan(servers: Servers, settings: Settings, variables: dict[str, str], folder: Path, workers: int) -> Services:
    environment = Environment.read({**variables, **_variables(settings)})
    own = Servers(settings.database_url, settings.owner_url, settings.redis_url, servers.postgres, servers.valkey)
    return Services.plan(environment, own, folder / "root.key", Ports.choose(0, workers))


def _variables(settings: Settings) -> dict[str, str]:
    """The settings as environment variables, as far as they are not the defaults."""
    given = settings.model_dump(exclude={"database_url", "database_owner_url", "redis_url"}, exclude_defaults=True)
    texts = {name: value.get_secret_value() if isinstance(value, SecretStr) else value for name, value in given.items()}
    return {f"TIMBRELAY_{name.upper()}": str(value) for name, value in texts.items()}


def _answers(redis_url: str) -> bool:
    try:
        with redis.Redis.from_url(redis_url) as client:
            return bool(client.ping())
    except redis.ConnectionError:
        return False
