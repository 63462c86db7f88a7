"""The way to Redis (or Valkey), and the names of everything kept there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import ConnectionPool
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ExecAbortError, OutOfMemoryError, ReadOnlyError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from storage.errors import ServerUnavailable

CONNECT_TIMEOUT_S = 2.0
SOCKET_TIMEOUT_S = 5.0
BLOCK_MS = 1000
"""How long a blocking read waits; below the socket's timeout, or every quiet second would look like a dead server."""

JOBS = "timbrelay:jobs"
CONSUMER_GROUP = "workers"
DEAD_LETTER = "timbrelay:dead_letter"
SILENCES = "timbrelay:silences"
"""The channel on which voices that must not be heard any more are named."""
REVOCATIONS = "timbrelay:revocations"
"""The channel on which revoked API keys are named."""
WORKERS = "timbrelay:workers"
RELAYS = "timbrelay:relays"

SPEECH_LOGS = "timbrelay:speech_logs"
"""The tenants that have something in their speech logs."""
SPEECH_EPOCH = "timbrelay:speech_epoch"
"""Names this life of the data: another one where Redis was emptied."""


def results_key(relay: str) -> str:
    """The result stream of one relay process."""
    return f"timbrelay:results:{relay}"


def cancelled_key(context: str) -> str:
    """The tombstone of a context: workers stop when they see it."""
    return f"timbrelay:cancelled:{context}"


def silenced_key(voice: object) -> str:
    """The tombstone of a voice: workers stop speaking with it and forget its embedding."""
    return f"timbrelay:silenced:{voice}"


def acknowledged_key(voice: object, token: str) -> str:
    """The workers that have obeyed the tombstone with this token."""
    return f"timbrelay:acknowledged:{voice}:{token}"


def worker_key(worker: str) -> str:
    """The sign of life of a worker whose model is warm, with its load."""
    return f"timbrelay:worker:{worker}"


def relay_key(relay: str) -> str:
    """The sign of life of a relay, with its demand."""
    return f"timbrelay:relay:{relay}"


def speech_log_key(tenant: object) -> str:
    """What a tenant's finished contexts have used, until it is rolled up."""
    return f"timbrelay:speech_log:{tenant}"


def noted_key(context: str) -> str:
    """Says that a context stands in the speech log already."""
    return f"timbrelay:noted:{context}"


def journal_key(voice: object) -> str:
    """How many rewritings of the append-only file had begun when the voice's texts were removed."""
    return f"timbrelay:journal:{voice}"


def tries_key(voice: object, version: int) -> str:
    """How often the enrolment of a version was begun."""
    return f"timbrelay:tries:{voice}:{version}"


def sent_again_key(work: str) -> str:
    """Says that a piece of work, whose message seemed lost, was sent again."""
    return f"timbrelay:sent_again:{work}"


def upkeep_key(duty: str) -> str:
    """Where a duty's round through the tenants goes on."""
    return f"timbrelay:upkeep:{duty}"


def connect(url: str, *, connections: int = 8) -> Redis:
    """A client over a bounded pool; a caller beyond the bound waits its turn.

    RESP2 is asked for so that stream replies have one shape whatever the server's version.
    """
    pool: ConnectionPool = BlockingConnectionPool.from_url(
        url,
        max_connections=connections,
        timeout=SOCKET_TIMEOUT_S,
        protocol=2,
        socket_timeout=SOCKET_TIMEOUT_S,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        health_check_interval=30,
        retry=Retry(ExponentialBackoff(cap=0.2, base=0.02), 2),
    )
    return Redis.from_pool(pool)


_FULL = (OutOfMemoryError, ReadOnlyError, ExecAbortError)
_CANNOT_WRITE = ("MISCONF ", "NOREPLICAS ")
"""How a server that cannot write to its disk or to its replicas begins; redis-py has no classes for these."""


@asynccontextmanager
async def translated() -> AsyncIterator[None]:
    """Turn what the client library raises when the server is away, or cannot take anything, into ServerUnavailable."""
    try:
        yield
    except (RedisConnectionError, RedisTimeoutError, ConnectionError) as error:
        raise ServerUnavailable("Redis", str(error) or type(error).__name__) from error
    except ResponseError as error:
        if isinstance(error, _FULL) or any(sign in str(error) for sign in _CANNOT_WRITE):
            raise ServerUnavailable("Redis", str(error)) from error
        raise


async def ping(redis: Redis) -> None:
    """Raises ServerUnavailable unless the server answers."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await redis.ping()
    except (RedisError, OSError, TimeoutError) as error:
        raise ServerUnavailable("Redis", str(error) or type(error).__name__) from error
