"""storage.cold_jobs."""

from __future__ import annotations

import ssl

import pytest

from storage.cold_jobs import make_celery
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
