"""Celery's way in: `celery -A worker.celery_app worker`, and `celery -A worker.celery_app beat` or `--beat` with it."""

from __future__ import annotations

import logging
import sys

import structlog

from storage.cold_jobs import make_celery
from storage.encryption.keyring import Keyring
from storage.errors import StorageError
from storage.logs import configure_logs
from storage.memory_images import forbid_memory_images
from storage.settings import Settings
from worker.celery_processes import share_memory, supervise
from worker.enrolment.task import register
from worker.errors import WorkerError
from worker.sv2tts.bundle import Bundle
from worker.upkeep.deletion import register_deletion
from worker.upkeep.schedule import register_duties

forbid_memory_images()
configure_logs("celery", "INFO")
try:
    settings = Settings.read()
    configure_logs("celery", settings.log_level)
    # Better not to start than to find out with a person's recording in hand.
    Keyring.from_settings(settings)
    Bundle.load(settings.bundle)
except (StorageError, WorkerError) as error:
    structlog.get_logger().error("celery cannot run", reason=str(error))
    sys.exit(1)
# Each of our tasks says what it did; that one was sent, received and done, every ten seconds, is no news.
for name in ("celery.beat", "celery.worker.strategy", "celery.app.trace"):
    logging.getLogger(name).setLevel(logging.WARNING)
supervise()
app = make_celery(settings)
register(app, settings)
register_deletion(app, settings)
register_duties(app, settings)
share_memory()
