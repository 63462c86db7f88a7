"""An id of another tenant's costs what an unknown one costs: the very same statements, in the same order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine

from relay.api.services import Services
from relay.api.uploads import UploadRoom
from relay.app import make_api
from relay.clock import SystemClock
from relay.entrance.admission import Admission, Bounds
from relay.entrance.rate_limits import RateLimiter
from storage.cold_jobs import make_celery
from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.evidence.erasure import Erasure
from storage.redis import connect
from storage.settings import Settings
from storage.voices.voices import find_voice
from tests.conftest import MakeVoice, Tenant
from tests.relay.api.conftest import EMBEDDING, RECORDING


@pytest.fixture
async def client(settings: Settings, database: Database, keyring: Keyring, other: Tenant) -> AsyncIterator[Any]:
    """The API without a process of its own, for the other tenant, and what it asks the database."""
    redis = connect(settings.redis_url)
    services = Services(
        database,
        redis,
        make_celery(settings),
        keyring,
        RateLimiter(redis, 100),
        Admission("relay", SystemClock(), Bounds(1, 1, 1)),
        Erasure(database, redis, keyring),
        settings.max_recording_bytes,
        UploadRoom(),
    )
    transport = httpx2.ASGITransport(make_api(services))
    headers = {"Authorization": f"Bearer {other.key}"}
    async with httpx2.AsyncClient(transport=transport, base_url="http://relay", headers=headers) as opened:
        yield opened
    await redis.aclose()


@pytest.fixture
def asked(database: Database) -> list[str]:
    """The statements that were executed, without their values."""
    engine: AsyncEngine = database._engine
    heard: list[str] = []

    def hear(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        heard.append(statement)

    event.listen(engine.sync_engine, "before_cursor_execute", hear)
    return heard


async def test_foreign_ids_and_unknown_ids_are_the_same_work(
    client: Any, asked: list[str], acme: Tenant, make_voice: MakeVoice, database: Database
) -> None:
    """For every resource that has an id."""
    voice = await make_voice(acme.id, embedding=EMBEDDING)
    async with database.transaction(tenant=acme.id) as connection:
        found = await find_voice(connection, acme.id, voice)
    assert found is not None
    for method, path, foreign, content in _attempts(voice, found.consent_id, acme.key_id):
        await client.get("/v1/voices")
        works = []
        for wanted in (foreign, uuid4()):
            asked.clear()
            form = {name: value.format(wanted) for name, value in content.get("data", {}).items()}
            sent = {**content, "data": form} if form else content
            answer = await client.request(method, path.format(wanted), **sent)
            assert answer.status_code == 404, answer.text
            works.append(list(asked))
        assert works[0] == works[1] and works[0], (method, path)


def _attempts(voice: UUID, consent: UUID, key: UUID) -> list[tuple[str, str, UUID, dict[str, Any]]]:
    file = {"recording": RECORDING}
    return [
        ("GET", "/v1/voices/{}", voice, {}),
        ("PATCH", "/v1/voices/{}", voice, {"json": {"name": "x"}}),
        ("POST", "/v1/voices/{}/disable", voice, {}),
        ("POST", "/v1/voices/{}/enable", voice, {}),
        ("GET", "/v1/voices/{}/export", voice, {}),
        ("DELETE", "/v1/voices/{}", voice, {}),
        ("PUT", "/v1/aliases/x", voice, {"json": {"voice": str(voice)}}),
        ("GET", "/v1/consents/{}", consent, {}),
        ("POST", "/v1/consents/{}/withdraw", consent, {}),
        ("POST", "/v1/voices", consent, {"data": {"name": "x", "consent": "{}"}, "files": file}),
        ("GET", "/v1/deletions/{}", voice, {}),
        ("POST", "/v1/admin/keys/{}/rotate", key, {"json": {}}),
        ("DELETE", "/v1/admin/keys/{}", key, {}),
    ]
