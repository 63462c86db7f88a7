"""Celery's way in: `celery -A worker.celery_app worker`."""

from __future__ import annotations

from storage.cold_jobs import make_celery
from storage.logs import configure_logs
from storage.settings import Settings
from worker.enrolment.task import register

settings = Settings()  # type: ignore[call-arg]
configure_logs("celery", settings.log_level)
app = make_celery(settings)
register(app, settings)
