"""`python -m relay`: one relay process, from its settings to its orderly end."""

from __future__ import annotations

import asyncio
import gc
import logging
import secrets
import signal
import sys
from pathlib import Path

import structlog
import uvicorn
from redis.asyncio import Redis
from starlette.applications import Starlette

from relay.api.services import Services
from relay.api.uploads import UploadRoom
from relay.app import make_app
from relay.certificate import give_no_tickets, prepare_tls
from relay.clock import SystemClock
from relay.doors.http_audio import is_news
from relay.doors.limits import Limits
from relay.doors.reception import Reception
from relay.entrance.admission import Admission, Bounds
from relay.entrance.gate import Gate
from relay.errors import RelayError
from relay.native.messages import MAX_MESSAGE_BYTES
from relay.protocols import BoundedWebSocket, PromptHttp
from relay.speaking.hub import Hub
from relay.webrtc.terms import WebrtcTerms
from storage.cold_jobs import make_celery
from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.errors import ServerUnavailable, StorageError
from storage.evidence.erasure import Erasure
from storage.logs import configure_logs
from storage.memory_images import forbid_memory_images
from storage.probes import PartServer, listen, probe_app, serving
from storage.redis import connect, ping
from storage.schema import check_revision
from storage.settings import Settings
from storage.streams.jobs import JobStream

log = structlog.get_logger()

STOP_DEADLINE_S = 5
MAX_CONNECTIONS = 1000


def main() -> int:
    """Run until SIGTERM or SIGINT; 1 when the relay cannot start, with one sentence in the log."""
    forbid_memory_images()
    configure_logs("relay", "INFO")
    try:
        settings = Settings.read()
        configure_logs("relay", settings.log_level)
        prepare_tls(settings)
        asyncio.run(_run(settings))
    except (StorageError, RelayError, OSError) as error:
        log.error("the relay cannot run", reason=str(error))
        return 1
    return 0


async def _run(settings: Settings) -> None:
    keyring = Keyring.from_settings(settings)
    database = Database.for_service(settings)
    redis = connect(settings.redis_url)
    reader = connect(settings.redis_url, connections=2)
    try:
        await database.check_role()
        await check_revision(database)
        await JobStream(redis).ensure_group()
        name = secrets.token_hex(8)
        bounds = Bounds(settings.max_contexts, settings.max_tenant_contexts, settings.max_queue)
        admission = Admission(name, SystemClock(), bounds)
        hub = Hub(redis, reader, name, settings.relay_ttl_ms, admission)
        limits = Limits(
            settings.send_timeout_s,
            settings.idle_timeout_s,
            settings.sentence_timeout_s,
            settings.chunk_ms,
            settings.connection_life_s,
            settings.resume_window_s,
        )

        async def workers_are_warm() -> None:
            # What admission knows, not what Redis says now: who is told that the relay is ready wants to be taken.
            if not admission.workers:
                raise ServerUnavailable("the workers", "none is warm yet")

        async def lets_in() -> None:
            if hub.draining:
                raise ServerUnavailable("this relay", "it is going to stop")

        probes = probe_app(
            {"postgres": database.ping, "redis": lambda: ping(redis), "model": workers_are_warm, "door": lets_in}
        )
        metrics = serving(probes, settings.metrics_host, settings.relay_metrics_port, "TIMBRELAY_RELAY_METRICS_PORT")
        async with Gate.opened(settings, database, keyring) as gate, metrics:
            services = _gather(settings, database, redis, keyring, gate, admission)
            reception = Reception(hub, gate, database, limits, SystemClock())
            app = make_app(services, reception, WebrtcTerms.from_settings(settings))
            await _serve(app, hub, gate, settings)
    finally:
        await redis.aclose()
        await reader.aclose()
        await database.close()


def _gather(
    settings: Settings, database: Database, redis: Redis, keyring: Keyring, gate: Gate, admission: Admission
) -> Services:
    return Services(
        database,
        redis,
        make_celery(settings, patient=False),
        keyring,
        gate.limiter,
        admission,
        Erasure(database, redis, keyring),
        settings.max_recording_bytes,
        UploadRoom(),
    )


async def _serve(app: Starlette, hub: Hub, gate: Gate, settings: Settings) -> None:
    config = uvicorn.Config(
        app,
        host=settings.relay_host,
        port=settings.relay_port,
        log_config=None,
        access_log=False,
        lifespan="off",
        http=PromptHttp,
        ws=BoundedWebSocket,
        ws_max_size=MAX_MESSAGE_BYTES,
        # Audio does not get smaller, and each socket would keep a quarter of a megabyte for trying.
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=STOP_DEADLINE_S,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies,
        limit_concurrency=MAX_CONNECTIONS,
        ssl_certfile=settings.relay_tls_certificate if settings.relay_tls_certificate != Path() else None,
        ssl_keyfile=settings.relay_tls_key if settings.relay_tls_key != Path() else None,
    )
    config.load()
    if config.ssl is not None:
        give_no_tickets(config.ssl)
    server = PartServer(config)
    logging.getLogger("uvicorn.error").addFilter(is_news)
    listener = listen(settings.relay_host, settings.relay_port, "TIMBRELAY_RELAY_PORT")
    loop = asyncio.get_running_loop()
    asked_to_stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked_to_stop.set)
    log.info("ready", relay=hub.relay, port=listener.getsockname()[1])
    beside = [asyncio.create_task(part()) for part in (hub.run, gate.run)]
    serving_ = asyncio.create_task(server.serve([listener]))
    stopping = asyncio.create_task(asked_to_stop.wait())
    done, _ = await asyncio.wait([*beside, serving_, stopping], return_when=asyncio.FIRST_COMPLETED)
    if stopping in done:
        await hub.drain(settings.drain_timeout_s)
    server.should_exit = True
    await serving_
    # Only now, when the last connection has ended: what it has spoken is still to be written down.
    for task in (*beside, stopping):
        task.cancel()
    await asyncio.gather(*beside, stopping, return_exceptions=True)
    for task in done - {stopping}:
        task.result()


if __name__ == "__main__":
    status = main()
    # Everything is closed: spare the interpreter its last look at every object, which takes half a second.
    gc.freeze()
    sys.exit(status)
