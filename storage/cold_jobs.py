"""The queue of slow work (enrolment, and whatever else never shares the way of speech): Celery's.

Both ends use the same application object: the relay sends tasks by name, the worker registers them. Messages
are JSON and carry ids alone.
"""

from __future__ import annotations

import ssl
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

from celery import Celery
from kombu.exceptions import OperationalError

from storage.errors import ServerUnavailable
from storage.settings import Settings

ENROL = "timbrelay.enrol"
QUEUE = "timbrelay:cold"
_VISIBILITY_TIMEOUT_S = 120


def make_celery(settings: Settings) -> Celery:
    """The Celery application over the same Redis as everything else, in a queue of its own."""
    celery = Celery("timbrelay", broker=_broker_url(settings.redis_url))
    if settings.redis_url.startswith("rediss://"):
        celery.conf.broker_use_ssl = {"ssl_cert_reqs": ssl.CERT_REQUIRED}
    celery.conf.update(
        accept_content=["json"],
        task_serializer="json",
        task_ignore_result=True,
        task_default_queue=QUEUE,
        # A task whose worker dies is taken up again by the next.
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        task_time_limit=60,
        broker_connection_retry_on_startup=True,
        broker_transport_options={
            "visibility_timeout": _VISIBILITY_TIMEOUT_S,
            "global_keyprefix": "timbrelay:",
            "socket_timeout": 5,
            "socket_connect_timeout": 2,
        },
        # Fan-out and event messages would be a second, unbounded stream beside the log.
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
    )
    return celery


def send_enrolment(celery: Celery, tenant: UUID, voice: UUID, version: int) -> None:
    """Ask for a version's enrolment; blocks for a few milliseconds, so call it from a thread.

    Raises ServerUnavailable.
    """
    try:
        celery.send_task(ENROL, args=[str(tenant), str(voice), version], retry=False)
    except (OperationalError, OSError) as error:
        raise ServerUnavailable("Redis", str(error)) from error


def _broker_url(redis_url: str) -> str:
    """Celery's spelling of a Redis URL: `redis+socket` where redis-py says `unix` (Celery docs, "Using Redis")."""
    parts = urlsplit(redis_url)
    if parts.scheme != "unix":
        return redis_url
    user = f"{parts.netloc.split('@')[0]}@" if "@" in parts.netloc else ""
    number = parse_qs(parts.query).get("db", ["0"])[0]
    return f"redis+socket://{user}{parts.path}?virtual_host={number}"
