"""`python -m worker`: one worker process, from its settings to its orderly end."""

from __future__ import annotations

import asyncio
import gc
import os
import secrets
import signal
import socket
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import structlog

from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.errors import StorageError
from storage.logs import configure_logs
from storage.memory_images import forbid_memory_images
from storage.probes import probe_app, serving
from storage.redis import connect, ping
from storage.schema import check_revision
from storage.settings import Settings
from storage.streams.jobs import JobStream
from storage.streams.presence import WorkerLoad
from storage.streams.results import ResultPublisher
from worker import metrics
from worker.backends.choice import choose_backend
from worker.consumer import Consumer
from worker.embeddings import EmbeddingCache
from worker.engine import Engine
from worker.errors import WorkerError
from worker.scheduling import Limits
from worker.speaking import Speaking
from worker.sv2tts.bundle import Bundle
from worker.sv2tts.mel import SAMPLE_RATE
from worker.sv2tts.speech import SpeechModel

log = structlog.get_logger()

_MOST_THREADS = 4
_CONNECTIONS = 12
_SWITCH_INTERVAL_S = 0.001
"""How long the engine's thread may keep the interpreter while the event loop waits for it, and the other way round."""


def main() -> int:
    """Run until SIGTERM or SIGINT; 1 when the worker cannot start, with one sentence in the log."""
    forbid_memory_images()
    configure_logs("worker", "INFO")
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        settings = Settings.read()
        configure_logs("worker", settings.log_level)
        asyncio.run(_run(settings))
    except (StorageError, WorkerError, OSError) as error:
        log.error("the worker cannot run", reason=str(error))
        return 1
    return 0


async def _run(settings: Settings) -> None:
    name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
    keyring = Keyring.from_settings(settings)
    engine = await asyncio.to_thread(_load_engine, settings)
    database = Database.for_service(settings)
    redis = connect(settings.redis_url, connections=_CONNECTIONS)
    try:
        await database.check_role()
        await check_revision(database)
        jobs = JobStream(redis)
        await jobs.ensure_group()
        speaking = Speaking(engine, EmbeddingCache(database, keyring), jobs, ResultPublisher(redis))
        consumer = Consumer(
            name,
            redis,
            jobs,
            speaking,
            partial(_load, engine, settings),
            slots=settings.worker_slots,
            claim_after_ms=settings.claim_after_ms,
        )
        probes = probe_app({"postgres": database.ping, "redis": lambda: ping(redis)})
        async with serving(
            probes, settings.metrics_host, settings.worker_metrics_port, "TIMBRELAY_WORKER_METRICS_PORT"
        ):
            stop = _stop_event()
            serve = asyncio.create_task(engine.serve())
            # Without its engine a worker would hold jobs and never speak them.
            serve.add_done_callback(lambda _: stop.set())
            log.info("ready", worker=name, slots=settings.worker_slots, capacity=engine.capacity)
            await consumer.run(stop)
            serve.cancel()
            with suppress(asyncio.CancelledError):
                await serve
    finally:
        await redis.aclose()
        await database.close()


def _load_engine(settings: Settings) -> Engine:
    """The engine with its models loaded and warm."""
    threads = settings.worker_threads or min(max(1, (os.cpu_count() or 1) - 1), _MOST_THREADS)
    bundle = Bundle.load(settings.bundle)
    lexicon = settings.lexicon if settings.lexicon != Path() else None
    chunk_samples = settings.chunk_ms * SAMPLE_RATE // 1000
    load = partial(SpeechModel, bundle, lexicon=lexicon, chunk_samples=chunk_samples)
    choice = choose_backend(settings.backend, threads, load)
    limits = Limits(run_ahead_s=settings.run_ahead_ms / 1000, rows=settings.worker_rows)
    engine = Engine(choice.model, limits)
    engine.warm_up()
    log.info("model loaded", backend=choice.name, threads=threads, passed_over=choice.passed_over)
    return engine


def _load(engine: Engine, settings: Settings) -> WorkerLoad:
    load = WorkerLoad(settings.worker_capacity or engine.capacity, engine.listeners, engine.busy_share())
    metrics.CAPACITY.set(load.capacity)
    metrics.BUSY.set(load.busy)
    return load


def _stop_event() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


if __name__ == "__main__":
    status = main()
    # Everything is closed: spare the interpreter its last look at every object, which takes half a second.
    gc.freeze()
    sys.exit(status)
