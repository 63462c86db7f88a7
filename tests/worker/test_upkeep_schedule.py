"""worker.upkeep.schedule, and how Celery is set up for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import redis

from storage.cold_jobs import KEY_PREFIX, PERIODS_S, QUEUE, Duty, lease_s, make_celery
from storage.settings import Settings
from tests.conftest import wait_until
from worker.upkeep.schedule import WORK, register_duties

ROOT = Path(__file__).resolve().parents[2]
FASTER = """
from storage import cold_jobs
cold_jobs.PERIODS_S[cold_jobs.Duty.ROLL_UP] = 0.1
import sys
from celery.__main__ import main
sys.argv = ["celery", "-A", "worker.celery_app", "beat"]
main()
"""


def test_every_duty_has_its_work_its_task_and_its_period(settings: Settings) -> None:
    """Beat sends each by the name under which Celery knows it, and nothing that is older than its period is done."""
    celery = make_celery(settings)
    register_duties(celery, settings)
    assert set(WORK) == set(PERIODS_S) == set(Duty)
    schedule = celery.conf.beat_schedule
    assert {entry["task"] for entry in schedule.values()} == set(map(str, Duty))
    assert set(map(str, Duty)) <= set(celery.tasks)
    assert all(entry["options"]["expires"] == entry["schedule"] for entry in schedule.values())
    assert not any(celery.tasks[duty.value].acks_late for duty in Duty)


def test_a_claim_outlasts_its_task_and_ends_before_its_message_is_delivered_again(settings: Settings) -> None:
    """Whatever the limit: no two at once, and no message that comes back to a version that is still claimed."""
    for limit_s in (1.0, 30.0, 600.0):
        changed = settings.model_copy(update={"task_limit_s": limit_s})
        conf = make_celery(changed).conf
        visible_s = conf.broker_transport_options["visibility_timeout"]
        assert conf.task_soft_time_limit < conf.task_time_limit < lease_s(changed) < visible_s


def test_beat_alone_sends_what_is_due_and_writes_no_file(settings: Settings, tmp_path: Path) -> None:
    """`celery beat` in a folder leaves nothing there, neither while it runs nor afterwards."""
    environment = {
        **os.environ,
        "DATABASE_URL": settings.database_url,
        "REDIS_URL": settings.redis_url,
        "TIMBRELAY_ROOT_KEY": settings.root_key.get_secret_value(),
        "TIMBRELAY_BUNDLE": str(settings.bundle),
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    with (
        redis.Redis.from_url(settings.redis_url) as client,
        (tmp_path.parent / "beat.log").open("wb") as log,
        subprocess.Popen(
            [sys.executable, "-c", FASTER], env=environment, cwd=tmp_path, stdout=log, stderr=log
        ) as process,
    ):
        try:
            wait_until(lambda: client.llen(f"{KEY_PREFIX}{QUEUE}"))
            assert list(tmp_path.iterdir()) == []
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(10)
    assert list(tmp_path.iterdir()) == []
