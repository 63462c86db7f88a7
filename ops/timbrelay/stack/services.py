"""How the relay, the workers and Celery are run: their commands and their environment."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from timbrelay.environment import Environment
from timbrelay.stack.ports import LOOPBACK, choose_port, free_ports
from timbrelay.stack.postgres import without_libpq
from timbrelay.stack.process import Command
from timbrelay.stack.servers import Servers

_CELERY = (
    *("-m", "celery", "-A", "worker.celery_app", "worker", "--beat", "--loglevel", "INFO"),
    # Alone in its queue, it has nobody to greet at the start; greeting takes a second.
    *("--without-mingle", "--without-gossip"),
)


@dataclass(frozen=True, slots=True)
class Ports:
    """Where the processes of one stack listen."""

    relay: int
    relay_metrics: int
    worker_metrics: tuple[int, ...]

    @classmethod
    def choose(cls, asked: int | None, workers: int) -> Ports:
        """Raises PortInUse when a port was asked for and is taken."""
        relay = choose_port(asked)
        relay_metrics, *worker_metrics = (port for port in free_ports(workers + 2) if port != relay)
        return cls(relay, relay_metrics, tuple(worker_metrics[:workers]))

    @property
    def relay_url(self) -> str:
        return f"http://{LOOPBACK}:{self.relay}"

    @property
    def metrics_urls(self) -> dict[str, str]:
        """The address with `/healthz`, `/readyz` and `/metrics`, by the name of the process."""
        numbered = {worker_name(index): port for index, port in enumerate(self.worker_metrics)}
        return {name: f"http://{LOOPBACK}:{port}" for name, port in {"relay": self.relay_metrics, **numbered}.items()}


@dataclass(frozen=True, slots=True)
class Services:
    """What the processes share: the checkout, the variables, the ports."""

    root: Path
    variables: Mapping[str, str]
    ports: Ports

    @classmethod
    def plan(cls, environment: Environment, servers: Servers, root_key_file: Path, ports: Ports) -> Services:
        """The owner's login stays here: no service is given more than it needs."""
        withheld = {"DATABASE_OWNER_URL", "TIMBRELAY_DATABASE_OWNER_URL", "TIMBRELAY_DATABASE_URL"}
        inherited = {name: value for name, value in environment.variables.items() if name not in withheld}
        if servers.postgres:
            inherited = without_libpq(inherited)
        given = {
            "DATABASE_URL": servers.database_url,
            "REDIS_URL": servers.redis_url,
            "TIMBRELAY_ROOT_KEY_FILE": str(root_key_file),
            "TIMBRELAY_RELAY_HOST": LOOPBACK,
            "TIMBRELAY_METRICS_HOST": LOOPBACK,
            "TIMBRELAY_RELAY_PORT": str(ports.relay),
            "TIMBRELAY_RELAY_METRICS_PORT": str(ports.relay_metrics),
            "PYTHONUNBUFFERED": "1",
            # Threads of the numerical libraries would only fight over the cores with those of the model.
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        usual = {
            "TIMBRELAY_BUNDLE": str(environment.root / "bundles" / "base"),
            # Whoever stops a stack on a laptop waits for it.
            "TIMBRELAY_DRAIN_TIMEOUT_S": "1",
        }
        chosen = {name: inherited.get(name) or value for name, value in usual.items()}
        return cls(environment.root, {**inherited, **given, **chosen}, ports)

    def relay(self) -> Command:
        return self._python("relay", "-m", "relay")

    def worker(self, index: int) -> Command:
        port = {"TIMBRELAY_WORKER_METRICS_PORT": str(self.ports.worker_metrics[index])}
        return self._python(worker_name(index), "-m", "worker", **port)

    def celery(self) -> Command:
        return self._python("celery", *_CELERY)

    def _python(self, name: str, *arguments: str, **variables: str) -> Command:
        return Command(name, (sys.executable, *arguments), self.root, {**self.variables, **variables})


def worker_name(index: int) -> str:
    """`worker` for the first, then `worker-2` and so on."""
    return "worker" if index == 0 else f"worker-{index + 1}"
