"""The port for orchestrators and Prometheus, the same in every process: alive, ready, figures.

It carries no tenant's data and takes no key, so it belongs on an address that clients cannot reach.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from storage.errors import PortInUse, StorageError

Check = Callable[[], Awaitable[None]]
_STOP_DEADLINE_S = 2.0


def probe_app(checks: dict[str, Check]) -> Starlette:
    """`/healthz` (the process answers), `/readyz` (every check passes, else 503 and which did not), `/metrics`."""

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("alive\n")

    async def readyz(_: Request) -> Response:
        states = {name: await _state(check) for name, check in checks.items()}
        ready = all(state == "ok" for state in states.values())
        return JSONResponse({"ready": ready, "checks": states}, status_code=200 if ready else 503)

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(REGISTRY), headers={"Content-Type": CONTENT_TYPE_LATEST})

    return Starlette(routes=[Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics)])


@asynccontextmanager
async def serving(app: Starlette, host: str, port: int, setting: str) -> AsyncIterator[None]:
    """Serve an application beside the process's own work; raises PortInUse, which names the port's `setting`."""
    server = PartServer(uvicorn.Config(app, host=host, port=port, log_config=None, access_log=False, lifespan="off"))
    listener = listen(host, port, setting)
    task = asyncio.create_task(server.serve([listener]))
    try:
        yield
    finally:
        server.should_exit = True
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP_DEADLINE_S):
                await task
        listener.close()


class PartServer(uvicorn.Server):
    """A server that is one part of a process: signals are the process's own to act on."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take no signal."""
        yield


def listen(host: str, port: int, setting: str) -> socket.socket:
    """A listening socket, bound before anything is served; raises PortInUse."""
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise PortInUse(host, port, setting, error.strerror or str(error)) from error
    # Inherited by what is accepted. asyncio sets it on sockets of its own making alone, and without it a chunk waits up
    # to 40 ms for the acknowledgement of the message before it (RFC 896 meets RFC 1122, section 4.2.3.2).
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


async def _state(check: Check) -> str:
    try:
        await check()
    except StorageError as error:
        return str(error)
    return "ok"
