"""The whole local stack in one data folder: started in parallel, watched, ended in order."""

from __future__ import annotations

import contextlib
import http.client
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from timbrelay.environment import Environment
from timbrelay.errors import OpsError, UsageFault
from timbrelay.stack.folder import DataFolder, StackNote
from timbrelay.stack.log import rotate, tail
from timbrelay.stack.ports import choose_port
from timbrelay.stack.schema import ensure_schema
from timbrelay.stack.servers import Servers, run_servers
from timbrelay.stack.services import Ports, Services
from timbrelay.stack.supervisor import Supervisor, Tier

Report = Callable[[str], None]

_READY_TIMEOUT_S = 90.0
_POLL_S = 0.02
_PROBE_TIMEOUT_S = 2.0
_TLS = "TIMBRELAY_RELAY_TLS_"


@dataclass(frozen=True, slots=True)
class Options:
    """What a user can choose about a stack."""

    port: int | None = None
    """The relay's; None: 8080 or any that is free; 0: any that is free."""

    workers: int = 1

    shared: bool = False
    """Whether other commands may use it while it runs: only then it is noted, and can enrol from the start."""


@dataclass(frozen=True, slots=True)
class Stack:
    """A stack that is ready."""

    note: StackNote
    servers: Servers
    supervisor: Supervisor | None
    """None when another process runs it."""

    services: Services | None
    """None when another process runs it."""

    def allow_enrolment(self) -> None:
        """Starts Celery, once. It is not on the way of speech and must not slow down the start of what is."""
        if self.supervisor and self.services and "celery" not in self.supervisor.pids():
            self.supervisor.start(self.services.celery(), Tier.SERVICES)

    def check(self) -> None:
        """Restarts what has died. To be called several times a second; raises ServiceDied when it is hopeless."""
        if self.supervisor:
            self.supervisor.check()


@contextlib.contextmanager
def run_stack(
    environment: Environment, options: Options, report: Report, hurry: Callable[[], bool] = lambda: False
) -> Iterator[Stack]:
    """Starts everything, gives it when the relay says it is ready, and ends it. `report` is told each step.

    Raises OpsError when something cannot start; whatever was started by then has been ended.
    """
    folder = DataFolder(environment.home)
    folder.prepare()
    with folder.lock(), contextlib.ExitStack() as life:
        with _explained(folder):
            rotate(folder.log)
            life.callback(folder.note_file.unlink, missing_ok=True)
            if options.port:
                choose_port(options.port)
            supervisor = Supervisor(folder.log, hurry)
            report(_first_step(environment, folder))
            servers = life.enter_context(run_servers(environment, folder, supervisor))
            stack = _start(environment, options, folder, servers, supervisor, report)
        yield stack
        report("Stopping")


@contextlib.contextmanager
def use_stack(
    environment: Environment, options: Options, report: Report, hurry: Callable[[], bool] = lambda: False
) -> Iterator[Stack]:
    """The stack that already runs on the data folder, else one of our own for as long as this lasts.

    Raises UsageFault when another port was asked for than the running one has, and what `run_stack` raises.
    """
    note = DataFolder(environment.home).note()
    if note is None:
        with run_stack(environment, options, report, hurry) as stack:
            yield stack
        return
    if options.port and not note.relay_url.endswith(f":{options.port}"):
        raise UsageFault(f"A stack already runs at {note.relay_url}; leave --port out, or stop that one first.")
    yield Stack(note, _noted_servers(note), None, None)


@contextlib.contextmanager
def open_servers(environment: Environment) -> Iterator[Servers]:
    """The servers of the running stack; when none runs, those given by URL or our own, for as long as this lasts."""
    folder = DataFolder(environment.home)
    if note := folder.note():
        yield _noted_servers(note)
        return
    folder.prepare()
    with folder.lock(), contextlib.ExitStack() as life:
        with _explained(folder):
            servers = life.enter_context(run_servers(environment, folder, Supervisor(folder.log)))
            if servers.postgres:
                ensure_schema(servers, environment)
        yield servers


def _without_tls(environment: Environment) -> Environment:
    """A certificate is for the name of a server; the local stack has none, and its own commands speak plain HTTP."""
    kept = {name: value for name, value in environment.variables.items() if not name.startswith(_TLS)}
    return replace(environment, variables=kept)


def _start(
    environment: Environment,
    options: Options,
    folder: DataFolder,
    servers: Servers,
    supervisor: Supervisor,
    report: Report,
) -> Stack:
    ports = Ports.choose(options.port, options.workers)
    ensure_schema(servers, environment)
    services = Services.plan(_without_tls(environment), servers, folder.ensure_root_key(), ports)
    report("Starting the relay and warming the model")
    for index in range(options.workers):
        supervisor.start(services.worker(index), Tier.SERVICES)
    supervisor.start(services.relay(), Tier.SERVICES)
    wait_ready(ports, supervisor)
    note = StackNote(
        relay_url=ports.relay_url,
        metrics_urls=ports.metrics_urls,
        database_url=servers.database_url,
        database_owner_url=servers.database_owner_url,
        redis_url=servers.redis_url,
        root_key_file=str(folder.root_key_file),
        pids=supervisor.pids(),
    )
    stack = Stack(note, servers, supervisor, services)
    if options.shared:
        stack.allow_enrolment()
        folder.write_note(replace(note, pids=supervisor.pids()))
    return stack


def wait_ready(ports: Ports, supervisor: Supervisor, timeout_s: float = _READY_TIMEOUT_S) -> None:
    """Returns when every `/readyz` answers 200. Raises ServiceDied, or OpsError at the deadline."""
    end = time.monotonic() + timeout_s
    # The relay is asked last: it answers early, each time at a cost, and cannot be ready before the workers are.
    for name, url in reversed(ports.metrics_urls.items()):
        while not is_ready(url):
            supervisor.require_all()
            if time.monotonic() > end:
                log = supervisor.log
                raise OpsError(f"The {name} was not ready in {timeout_s:.0f} s. The end of {log}:\n{tail(log)}")
            time.sleep(_POLL_S)


def is_ready(metrics_url: str) -> bool:
    """Whether the process behind this address says that it can work."""
    address = urlsplit(metrics_url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=_PROBE_TIMEOUT_S)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _first_step(environment: Environment, folder: DataFolder) -> str:
    if environment.database_url:
        return "Reaching the servers"
    return "Starting Postgres and Valkey" if folder.postgres.exists() else "Making the database"


def _noted_servers(note: StackNote) -> Servers:
    return Servers(note.database_url, note.database_owner_url, note.redis_url, None, None)


@contextlib.contextmanager
def _explained(folder: DataFolder) -> Iterator[None]:
    """While the stack is being built, an error of the file system is the data folder's."""
    try:
        yield
    except OSError as error:
        raise folder.explain(error) from error
