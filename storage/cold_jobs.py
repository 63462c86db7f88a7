"""The queue of slow work (enrolment, deletion, upkeep: whatever never shares the way of speech): Celery's.

Both ends use the same application object: whoever has work sends a task by name, the worker registers it. Messages are
JSON and carry ids alone, and nothing is kept of a result.
"""

from __future__ import annotations

import ssl
from enum import StrEnum
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

from celery import Celery
from kombu.exceptions import OperationalError

from storage.errors import ServerUnavailable
from storage.settings import Settings

QUEUE = "timbrelay:cold"
KEY_PREFIX = "timbrelay:"
ENROL = "timbrelay.enrol"
DELETE = "timbrelay.delete"

TASKS_PER_CHILD = 200
MEMORY_PER_CHILD_KB = 600_000
"""A child that has grown beyond this is replaced after its task; 150 MB are what it needs."""

RESTORE_PERIOD_S = 5
_AT_ONCE = {"max_retries": 1, "interval_start": 0, "interval_step": 0, "interval_max": 0}


class Duty(StrEnum):
    """What is done again and again, by its task's name."""

    ROLL_UP = "timbrelay.roll_up"
    RETENTION = "timbrelay.retention"
    CONSENT_EXPIRY = "timbrelay.consent_expiry"
    LOST_WORK = "timbrelay.lost_work"
    TIDYING = "timbrelay.tidying"
    CHECKPOINTS = "timbrelay.checkpoints"


PERIODS_S = {
    Duty.ROLL_UP: 10,
    Duty.LOST_WORK: 30,
    Duty.CONSENT_EXPIRY: 60,
    Duty.RETENTION: 300,
    Duty.TIDYING: 300,
    Duty.CHECKPOINTS: 600,
}
"""How often each duty is due. Nothing remembers when it was last done, so a restart only begins a period anew."""


def make_celery(settings: Settings, *, patient: bool = True) -> Celery:
    """The Celery application over the same Redis as everything else, in a queue of its own.

    Who only sends, and has somebody waiting, is not `patient`: without Redis he is told so at once, and not after six
    seconds of trying.
    """
    celery = Celery("timbrelay", broker=_broker_url(settings.redis_url))
    if settings.redis_url.startswith("rediss://"):
        celery.conf.broker_use_ssl = {"ssl_cert_reqs": ssl.CERT_REQUIRED}
    celery.conf.update(
        accept_content=["json"],
        task_serializer="json",
        task_ignore_result=True,
        task_default_queue=QUEUE,
        # A message waits in the queue, where any Celery that is free finds it, not in the hands of one that is busy.
        worker_prefetch_multiplier=1,
        worker_disable_prefetch=True,
        broker_connection_retry_on_startup=True,
        # Fan-out and event messages would be a second, unbounded stream beside the log.
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        **_processes(settings),
        **_delivery(settings),
        **_beat(),
    )
    if not patient:
        celery.conf.broker_transport_options |= _AT_ONCE
    return celery


def lease_s(settings: Settings) -> float:
    """How long whoever enrols a version has it for himself: longer than a task can last, shorter than it takes until
    the message of a dead worker is delivered again."""
    return settings.task_limit_s * 7 / 6


def send_enrolment(celery: Celery, tenant: UUID, voice: UUID, version: int) -> None:
    """Ask for a version's enrolment; blocks for a few milliseconds, so call it from a thread.

    Raises ServerUnavailable; the version is enrolled all the same, when upkeep comes by.
    """
    _send(celery, ENROL, [str(tenant), str(voice), version])


def send_deletion(celery: Celery, tenant: UUID, deletion_id: UUID) -> None:
    """Ask for another attempt at a deletion; blocks for a few milliseconds, so call it from a thread.

    Raises ServerUnavailable; the attempt is made all the same, when upkeep comes by.
    """
    _send(celery, DELETE, [str(tenant), str(deletion_id)])


def _send(celery: Celery, name: str, arguments: list[str | int]) -> None:
    try:
        celery.send_task(name, args=arguments, retry=False)
    except (OperationalError, OSError) as error:
        raise ServerUnavailable("Redis", str(error)) from error


def _processes(settings: Settings) -> dict[str, Any]:
    return {
        "worker_pool": "prefork",
        "worker_concurrency": settings.celery_processes,
        "worker_max_tasks_per_child": TASKS_PER_CHILD,
        "worker_max_memory_per_child": MEMORY_PER_CHILD_KB,
        "task_soft_time_limit": settings.task_limit_s * 5 / 6,
        "task_time_limit": settings.task_limit_s,
    }


def _delivery(settings: Settings) -> dict[str, Any]:
    """A task whose worker dies is delivered again: at once when its parent lives, else after the visibility timeout.

    Nothing may be held unacknowledged for longer, so a retry has to be due sooner than that (Celery manual, "Using
    Redis", "Visibility timeout").
    """
    return {
        "task_acks_late": True,
        "task_acks_on_timeout": False,
        "task_reject_on_worker_lost": True,
        "broker_transport_options": {
            "visibility_timeout": settings.task_limit_s * 3 / 2,
            # By itself it looks for such messages every 100 s.
            "unacked_restore_interval": min(RESTORE_PERIOD_S, settings.task_limit_s / 4),
            "unacked_restore_throttle": 1,
            "global_keyprefix": KEY_PREFIX,
            "socket_timeout": 5,
            "socket_connect_timeout": 2,
        },
    }


def _beat() -> dict[str, Any]:
    """Without a schedule file: it would litter the working folder, and nothing in it is needed."""
    return {
        "beat_scheduler": "celery.beat:Scheduler",
        "beat_schedule": {
            # What was not begun by the time it is due again is not worth doing.
            duty.value: {"task": duty.value, "schedule": period_s, "options": {"expires": period_s}}
            for duty, period_s in PERIODS_S.items()
        },
    }


def _broker_url(redis_url: str) -> str:
    """Celery's spelling of a Redis URL: `redis+socket` where redis-py says `unix` (Celery docs, "Using Redis")."""
    parts = urlsplit(redis_url)
    if parts.scheme != "unix":
        return redis_url
    user = f"{parts.netloc.split('@')[0]}@" if "@" in parts.netloc else ""
    number = parse_qs(parts.query).get("db", ["0"])[0]
    return f"redis+socket://{user}{parts.path}?virtual_host={number}"
