"""A whole life of voices on a running stack, after which nothing of anybody lies around in the clear.

What holds, and is tested here: recordings (as sent, as samples, as stored), embeddings, statements and who signed them,
API keys and every key of the hierarchy are in no table, no file of Postgres (the write-ahead log among them: what
reaches Postgres is sealed), no key or file of Valkey, no message of Celery, no log, no metric and no temporary file, at
any time. A text stands in the stream of jobs and in the append-only file until it is trimmed, or its voice deleted.
Clients' addresses stand in the audit log, on their way there in the speech log, and for a minute with the rates. A
deleted voice's name and aliases are in no row, but may be in dead rows and in the write-ahead log. Not looked into:
memory, swap, and what has been written over on the disk.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import httpx2
import pytest
import redis
from pydantic import SecretStr
from sqlalchemy import select

from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.encryption.providers import WrappedKey
from storage.encryption.providers.local import read_keys
from storage.evidence.audit import audit_key
from storage.evidence.signing import label_of
from storage.private_files import write_private
from storage.settings import Settings
from storage.tables import data_keys, signing_keys, tenant_keys
from tests.conftest import MakeTenant, StartStack, wait_until
from tests.system.conftest import SAMPLES
from tests.system.leavings import Leavings, Places
from tests.system.lives import ADDRESS, ALIAS, NAME, SIGNER, SPOKEN, STATEMENT, WRONG_KEY, Life, headers_of
from tests.system.plaintext import Search, Secret
from tests.worker.recordings import voice as talk
from tests.worker.recordings import write
from timbrelay.stack.servers import Servers
from worker.enrolment.recording import read_recording

BELONG = {
    "the text": ("key timbrelay:jobs", "file valkey/"),
    "the name": ("table public.voices ", "table public.idempotency_keys ", "file postgres/"),
    "the alias": ("table public.voice_aliases ", "file postgres/"),
    "the address": ("table public.audit_log ", "key timbrelay:rate", "key timbrelay:speech_log", "file "),
}
"""Where something may be while its voice is there: the beginnings of the places' names."""
REMAIN = {
    "the name": ("file postgres/",),
    "the alias": ("file postgres/",),
    "the address": ("table public.audit_log ", "key timbrelay:rate", "file "),
}
"""And when it was deleted."""


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    """As usual, but the root key lies in the file that the stack's processes are given, so that it can be rotated."""
    write_private(tmp_path / "root.key", settings.root_key.get_secret_value() + "\n")
    return settings.model_copy(update={"root_key": SecretStr(""), "root_key_file": tmp_path / "root.key"})


@pytest.fixture
def leavings(start_stack: StartStack, settings: Settings, servers: Servers, tmp_path: Path) -> Leavings:
    """A relay and a worker that believe a proxy; Celery is not there yet. Their temporary folder is theirs alone."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    stack = start_stack(only=(), trusted_proxies="127.0.0.1", max_recording_bytes=1 << 20)
    stack.services = replace(stack.services, variables={**stack.services.variables, "TMPDIR": str(temporary)})
    for name in ("worker", "relay"):
        stack.start(name)
    stack.wait_ready()
    return Leavings(stack, settings, servers, temporary)


@pytest.fixture
async def life(make_tenant: MakeTenant, leavings: Leavings) -> AsyncIterator[Life]:
    """A tenant that has not done anything yet."""
    key = (await make_tenant("acme")).key
    async with httpx2.AsyncClient(base_url=leavings.stack.relay_url, headers=headers_of(key), timeout=60) as http:
        yield Life(http, key)


async def test_nothing_of_anybody_lies_around_in_the_clear(
    leavings: Leavings, life: Life, database: Database, keyring: Keyring, clean_variables: dict[str, str]
) -> None:
    """From the first consent to the receipt, beside refusals and rotations, nothing is found where it must not be."""
    spoken = life.hide_recording("the spoken consent", write(talk(6.0, who="low"), "FLAC"))
    upload = life.hide_recording("the upload", SAMPLES["low"].read_bytes())
    browser = life.hide_recording(
        "the browser's upload", (SAMPLES["low"].parent / "browser-recording.webm").read_bytes()
    )
    other = life.hide_recording("the replacement", write(talk(8.0, level=0.2, who="low"), "OGG", "OPUS"))
    refused = life.hide_recording("the refused upload", write(talk(2.0, level=0.1), "WAV", "PCM_24"))
    life.hide("the decoded upload", read_recording(upload, max_bytes=len(upload)).samples.tobytes())
    consent, plain = await life.consent(spoken), await life.consent()
    again = {"Idempotency-Key": "first-try-of-a-voice"}
    voice = (await life.upload("/v1/voices", consent, upload, **again))["id"]
    _check(life, leavings.redis(), BELONG)
    leavings.stack.start("celery")
    assert await life.wait(voice) == "ready"
    await life.export(voice)
    assert (await life.upload("/v1/voices", consent, upload, **again))["id"] == voice
    assert await life.wait((await life.upload("/v1/voices", plain, browser, "second"))["id"]) == "ready"
    assert await life.wait((await life.upload("/v1/voices", plain, refused, "third"))["id"]) == "failed"
    await life.ask("PUT", f"/v1/aliases/{ALIAS}", json={"voice": voice})
    await life.speak(ALIAS)
    await life.offend(consent, upload)
    await _hide_keys(life, database, keyring, leavings.settings)
    await _rotate(leavings, clean_variables)
    made = (await life.ask("POST", "/v1/admin/keys", json={"name": "x", "scopes": ["speak"]})).json()
    successor = (await life.ask("POST", f"/v1/admin/keys/{made['id']}/rotate", json={})).json()
    life.hide("an API key", f"{life.key} {made['key']} {successor['key']}".encode())
    assert await life.wait((await life.upload(f"/v1/voices/{voice}/versions", plain, other))["id"]) == "ready"
    await life.ask("POST", f"/v1/voices/{voice}/disable")
    await life.ask("POST", f"/v1/voices/{voice}/enable")
    await life.export(voice)
    await life.speak(voice)
    await _hide_keys(life, database, keyring, leavings.settings)
    _check(life, leavings.gather(), BELONG)
    assert (await life.ask("DELETE", f"/v1/voices/{voice}")).json()["deletion"]["object_id"] == voice
    await life.wait_deleted(voice)
    _wait_trimmed(leavings)
    _check(life, leavings.gather(), REMAIN, deleted=True)


def _check(life: Life, places: Places, belong: dict[str, tuple[str, ...]], *, deleted: bool = False) -> None:
    """Nothing is where it does not belong; and what the search would be blind for is looked for where it is."""
    texts = [
        Secret("the text", SPOKEN.encode()),
        Secret("the name", NAME.encode()),
        Secret("the alias", ALIAS.encode()),
    ]
    people = [Secret("the statement", STATEMENT.encode()), Secret("the signer", SIGNER.encode())]
    found = Search(*life.secrets, *texts, *people, Secret("a wrong key", WRONG_KEY.encode())).find_all(places)
    found |= {("the address", place) for place, content in places.items() if ADDRESS.encode() in content}
    astray = {(name, place) for name, place in found if not place.startswith(belong.get(name, ("nowhere",)))}
    assert not astray
    if any(place.startswith("table") for place in places) and not deleted:
        assert {name for name, _ in found} == set(belong)


async def _hide_keys(life: Life, database: Database, keyring: Keyring, settings: Settings) -> None:
    """The root keys, the tenant's keys, all data keys, the key of its texts, and the one that signs."""
    for number, root in enumerate(read_keys(settings.root_key_file)):
        life.hide(f"root key {number}", root.reveal())
    async with database.transaction(operator=True) as connection:
        tenant = UUID(str((await connection.exec_driver_sql("SELECT id FROM tenants")).scalar_one()))
    keyring.forget()
    async with database.transaction(tenant=tenant) as connection:
        for row in (await connection.execute(select(tenant_keys))).all():
            life.hide("the tenant key", (await keyring.open_tenant_key(connection, row)).reveal())
        for owner in (await connection.execute(select(data_keys.c.owner_id))).scalars().all():
            key = await keyring.load_data_key(connection, tenant, owner)
            assert key is not None
            life.hide("a data key", key.reveal())
        life.hide("the audit key", (await audit_key(connection, keyring, tenant)).reveal())
        for row in (await connection.execute(select(signing_keys))).all():
            wrapped = WrappedKey(row.root_key_id, row.wrapped_key)
            life.hide("the signing key", keyring.provider.unwrap(wrapped, label_of(row.id)).reveal())


async def _rotate(leavings: Leavings, variables: dict[str, str]) -> None:
    given = {
        **variables,
        "TIMBRELAY_HOME": str(leavings.temporary.parent / "home"),
        "TIMBRELAY_ROOT_KEY_FILE": str(leavings.settings.root_key_file),
        "DATABASE_URL": leavings.settings.database_url,
        "DATABASE_OWNER_URL": leavings.settings.owner_url,
        "REDIS_URL": leavings.settings.redis_url,
    }
    command = (sys.executable, "-m", "timbrelay", "keys", "rotate", "--all", "--destroy-old")
    process = await asyncio.create_subprocess_exec(*command, env=given, stderr=asyncio.subprocess.PIPE)
    _, said = await process.communicate()
    assert process.returncode == 0, said.decode()


def _wait_trimmed(leavings: Leavings) -> None:
    """Until what was spoken is rolled up, and no rewriting of the append-only file is under way."""
    with redis.Redis.from_url(leavings.settings.redis_url) as client:

        def is_trimmed() -> bool:
            rewriting = client.info("persistence")["aof_rewrite_in_progress"]
            return not rewriting and not client.exists("timbrelay:speech_logs")

        wait_until(is_trimmed, 60)
