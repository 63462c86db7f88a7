"""storage.cold_jobs."""

from __future__ import annotations

import ssl
from pathlib import Path
from uuid import uuid4

import pytest

from storage.cold_jobs import make_celery, send_deletion, send_enrolment
from storage.errors import ServerUnavailable
from storage.settings import Settings


@pytest.mark.parametrize(
    ("redis_url", "broker_url"),
    [
        ("redis://host:6379/2", "redis://host:6379/2"),
        ("rediss://user:secret@host:6379/0", "rediss://user:secret@host:6379/0"),
        ("unix:///run/valkey.sock", "redis+socket:///run/valkey.sock?virtual_host=0"),
        ("unix:///run/valkey.sock?db=3", "redis+socket:///run/valkey.sock?virtual_host=3"),
        ("unix://user:secret@/run/valkey.sock", "redis+socket://user:secret@/run/valkey.sock?virtual_host=0"),
    ],
)
def test_celery_gets_the_same_server_in_its_own_spelling(redis_url: str, broker_url: str) -> None:
    """Sockets, databases, passwords and TLS survive the translation."""
    celery = make_celery(Settings.model_validate({"DATABASE_URL": "postgresql://x", "REDIS_URL": redis_url}))
    assert celery.conf.broker_url == broker_url
    if redis_url.startswith("rediss"):
        assert celery.conf.broker_use_ssl == {"ssl_cert_reqs": ssl.CERT_REQUIRED}


def test_celery_takes_json_alone() -> None:
    """No pickle: a message cannot carry code."""
    celery = make_celery(Settings.model_validate({"DATABASE_URL": "postgresql://x", "REDIS_URL": "redis://x"}))
    assert celery.conf.accept_content == ["json"]


def test_a_redis_that_stays_away_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has work to send and is patient learns it after a few pauses, of six seconds together."""
    pauses: list[float] = []
    monkeypatch.setattr("kombu.utils.functional.sleep", pauses.append)
    monkeypatch.setattr("kombu.utils.functional.time", lambda: sum(pauses))
    celery = make_celery(
        Settings.model_validate({"DATABASE_URL": "postgresql://x", "REDIS_URL": "redis://127.0.0.1:1"})
    )
    with pytest.raises(ServerUnavailable):
        send_enrolment(celery, uuid4(), uuid4(), 1)
    assert 2 < sum(pauses) < 8
    with pytest.raises(ServerUnavailable):
        send_deletion(celery, uuid4(), uuid4())


def test_a_task_is_acknowledged_when_it_is_done_and_comes_back_when_its_process_dies() -> None:
    """Late acknowledgement, a message put back for a process that died or was killed for its time, a bounded pool."""
    conf = make_celery(Settings.model_validate({"DATABASE_URL": "postgresql://x", "REDIS_URL": "redis://x"})).conf
    assert (conf.worker_pool, conf.worker_concurrency, conf.worker_prefetch_multiplier) == ("prefork", 2, 1)
    assert conf.task_acks_late and conf.task_reject_on_worker_lost and not conf.task_acks_on_timeout
    assert conf.task_ignore_result


def test_without_redis_somebody_who_waits_is_told_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Kombu tries for six seconds otherwise, with a thread of the relay and a client waiting for it."""
    urls = {"DATABASE_URL": "postgresql://x", "REDIS_URL": f"unix://{tmp_path}/none.sock"}
    celery = make_celery(Settings.model_validate(urls), patient=False)
    monkeypatch.setattr("kombu.utils.functional.sleep", lambda _: pytest.fail("it slept"))
    with pytest.raises(ServerUnavailable):
        send_deletion(celery, uuid4(), uuid4())
