"""Celery's way in: `celery -A worker.celery_app worker`."""

from __future__ import annotations

import sys

import structlog

from storage.cold_jobs import make_celery
from storage.encryption.keyring import RootKey
from storage.errors import StorageError
from storage.logs import configure_logs
from storage.settings import Settings
from worker.enrolment.task import register
from worker.errors import WorkerError
from worker.sv2tts.bundle import Bundle

configure_logs("celery", "INFO")
try:
    settings = Settings.read()
    configure_logs("celery", settings.log_level)
    # Better not to start than to find out with a person's recording in hand.
    RootKey.from_settings(settings)
    Bundle.load(settings.bundle)
except (StorageError, WorkerError) as error:
    structlog.get_logger().error("celery cannot run", reason=str(error))
    sys.exit(1)
app = make_celery(settings)
register(app, settings)
