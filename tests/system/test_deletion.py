"""Deletion on the running whole: what is heard after it, what is left of it, and what dies in the middle of it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx2
import psycopg
import pytest
import redis as blocking_redis
from psycopg import sql
from sqlalchemy import make_url

from storage.cold_jobs import make_celery, send_deletion
from storage.database import Database
from storage.evidence.deletions import ObjectKind, Reason, Request, request_deletion
from storage.evidence.receipts import verify_receipt
from storage.evidence.signing import load_public_keys
from storage.redis import connect, silenced_key
from storage.settings import Settings
from storage.streams.jobs import JobStream
from storage.streams.results import ResultReader
from storage.streams.wire import Failure, Job, Result
from tests.conftest import RunningStack, StartStack, wait_until
from tests.system.conftest import LONG_SENTENCE, SAMPLES, SPEECH, MakeSpeaker, Speaker, hear
from timbrelay.client import Chunk, ConnectionLost, Context, RelayError
from timbrelay.stack.servers import Servers

DEADLINE_S = 90.0
STOPS_WITHIN_S = 1.0
"""The promise: no audio later than this after the deletion was acknowledged."""
LONG_TEXT = f"{LONG_SENTENCE}. " * 60
WORKERS = ("worker", "worker-2")


@dataclass(slots=True)
class Api:
    """A tenant's way to the API, with whole answers."""

    http: httpx2.AsyncClient

    async def delete(self, voice: str) -> httpx2.Response:
        return await self.http.delete(f"/v1/voices/{voice}", timeout=30)

    async def deletion(self, deletion_id: str) -> Any:
        answer = await self.http.get(f"/v1/deletions/{deletion_id}")
        return answer.json() if answer.status_code == 200 else {"state": f"{answer.status_code}"}

    async def wait_done(self, deletion_id: str) -> Any:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                found = await self.deletion(deletion_id)
                if found["state"] == "done":
                    return found
                await asyncio.sleep(0.1)

    async def wait_refused(self) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                if (await self.http.get("/v1/voices")).status_code == 401:
                    return
                await asyncio.sleep(0.1)


MakeApi = Callable[[RunningStack, Speaker], Api]


@pytest.fixture
async def make_api() -> AsyncIterator[MakeApi]:
    clients: list[httpx2.AsyncClient] = []

    def make(stack: RunningStack, speaker: Speaker) -> Api:
        headers = {"Authorization": f"Bearer {speaker.key}"}
        clients.append(httpx2.AsyncClient(base_url=stack.relay_url, headers=headers))
        return Api(clients[-1])

    yield make
    for client in clients:
        await client.aclose()


async def _listen(context: Context, came: list[float], started: asyncio.Event) -> str:
    """Notes when each chunk came; gives the code that the context ended with."""
    try:
        async for event in context:
            if isinstance(event, Chunk):
                came.append(time.monotonic())
                started.set()
    except RelayError as error:
        return error.code
    return "done"


def _figure(stack: RunningStack, worker: str, line: str) -> float:
    figures = httpx2.get(f"{stack.metrics_urls[worker]}/metrics").text
    return sum(float(found.rsplit(" ", 1)[1]) for found in figures.splitlines() if found.startswith(line))


async def _speak_on_all(stack: RunningStack, speaker: Speaker, workers: tuple[str, ...] = WORKERS) -> None:
    """Until every worker has spoken with the voice, and so holds its embedding."""
    spoken = 'timbrelay_worker_jobs_total{outcome="spoken"}'
    async with asyncio.timeout(DEADLINE_S):
        while not all([await asyncio.to_thread(_figure, stack, worker, spoken) for worker in workers]):
            await asyncio.gather(*(speaker.speak("One. Two. Three.") for _ in range(4)))


async def _try_directly(settings: Settings, tenant: UUID, voice: str, count: int) -> list[Result]:
    """What workers answer to jobs that nobody's relay has checked, with the tombstone out of the way."""
    redis = connect(settings.redis_url)
    reader = ResultReader(redis, "test", 60_000)
    found: list[Result] = []
    await reader.keep_alive()
    await redis.delete(silenced_key(voice))
    for number in range(count):
        job = Job("test", f"direct-{number}", 0, tenant, UUID(voice), 1, int(time.time() * 1000), "Anybody there?")
        await JobStream(redis).submit(job)
    async with asyncio.timeout(DEADLINE_S):
        while len({result.context for result in found}) < count:
            found += [result async for result in reader.read()]
    await reader.close()
    await redis.aclose()
    return found


async def _tenant_of(settings: Settings, voice: str) -> UUID:
    with psycopg.connect(settings.owner_url) as connection:
        row = connection.execute("SELECT tenant_id FROM voices WHERE id = %s", (voice,)).fetchone()
    assert row is not None
    return UUID(str(row[0]))


async def test_speech_stops_within_a_second_on_every_worker_and_no_memory_keeps_the_voice(
    start_stack: StartStack, make_speaker: MakeSpeaker, make_api: MakeApi, settings: Settings
) -> None:
    """Eight streams on two workers end with `voice_unavailable`, no frame comes a second after the answer, and jobs
    put before the workers themselves find no embedding."""
    stack = start_stack(workers=2, only=("worker-2", *SPEECH), run_ahead_ms=600_000)
    speaker = await make_speaker(stack, "acme", "low")
    tenant = await _tenant_of(settings, speaker.voice)
    await _speak_on_all(stack, speaker)
    came: list[float] = []
    async with speaker.client.connect() as connection:
        contexts = [await connection.open(speaker.voice) for _ in range(8)]
        started = [asyncio.Event() for _ in contexts]
        listening = [
            asyncio.create_task(_listen(context, came, event)) for context, event in zip(contexts, started, strict=True)
        ]
        for context in contexts:
            await context.send(LONG_TEXT)
        await asyncio.gather(*(event.wait() for event in started))
        answer = await make_api(stack, speaker).delete(speaker.voice)
        acknowledged_at = time.monotonic()
        assert set(await asyncio.gather(*listening)) == {"voice_unavailable"}
    assert max(came) <= acknowledged_at + STOPS_WITHIN_S
    deletion = answer.json()["deletion"]
    assert (answer.status_code, deletion["state"]) == (200, "done"), deletion
    assert deletion["stores"]["workers"] == {**deletion["stores"]["workers"], "outcome": "done", "count": 2}
    for result in await _try_directly(settings, tenant, speaker.voice, 16):
        assert isinstance(result, Failure)
        assert result.code == "voice_unavailable"


async def test_a_stopped_worker_is_reported_and_the_deletion_done_without_anybody_asking(
    start_stack: StartStack, make_speaker: MakeSpeaker, make_api: MakeApi, settings: Settings
) -> None:
    """Partial at first, with the key destroyed; Celery goes on until it is done; the worker wakes up without it."""
    stack = start_stack(workers=2)
    speaker = await make_speaker(stack, "acme", "low")
    tenant = await _tenant_of(settings, speaker.voice)
    await _speak_on_all(stack, speaker)
    stack.pause("worker-2")
    api = make_api(stack, speaker)
    answer = await api.delete(speaker.voice)
    deletion = answer.json()["deletion"]
    assert (answer.status_code, deletion["state"]) == (202, "partial")
    stores = deletion["stores"]
    assert stores["workers"]["detail"] == "1 of 2 workers have not acknowledged"
    assert (stores["workers"]["outcome"], stores["keys"]["outcome"], stores["keys"]["count"]) == ("pending", "done", 1)
    done = await api.wait_done(deletion["id"])
    assert done["receipt"]
    stack.resume("worker-2")
    stack.kill("worker")
    for result in await _try_directly(settings, tenant, speaker.voice, 4):
        assert isinstance(result, Failure)


async def test_without_redis_a_deletion_destroys_the_key_and_is_completed_when_it_is_back(
    start_stack: StartStack, make_speaker: MakeSpeaker, make_api: MakeApi, settings: Settings
) -> None:
    """What was acknowledged while Redis was away is not lost, and done once it is there again."""
    stack = start_stack()
    speaker = await make_speaker(stack, "acme", "low")
    api = make_api(stack, speaker)
    assert stack.valkey is not None
    stack.valkey.kill()
    try:
        answer = await api.delete(speaker.voice)
        assert answer.status_code == 202, answer.text
        with psycopg.connect(settings.owner_url) as connection:
            query = "SELECT count(*) FROM keyring.data_keys WHERE owner_id = %s"
            assert connection.execute(query, (speaker.voice,)).fetchone() == (0,)
    finally:
        stack.valkey.start()
        wait_until(lambda: _pings(settings.redis_url))
    done = await api.wait_done(answer.json()["deletion"]["id"])
    assert {store["outcome"] for store in done["stores"].values()} == {"done"}


def _pings(url: str) -> bool:
    try:
        with blocking_redis.Redis.from_url(url) as client:
            return bool(client.ping())
    except blocking_redis.ConnectionError:
        return False


def _set_open(settings: Settings, allowed: bool) -> None:
    """Opens the test's database to connections, or closes it and ends those there are, as a server that stops does."""
    url = make_url(settings.owner_url)
    elsewhere = url.set(drivername="postgresql", database="postgres").render_as_string(hide_password=False)
    name = url.database or ""
    with psycopg.connect(elsewhere, autocommit=True) as connection:
        statement = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
        connection.execute(statement.format(sql.Identifier(name), sql.Literal(allowed)))
        if not allowed:
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))


async def _wait_for_store(settings: Settings, deletion_id: str, store: str) -> None:
    def reported() -> bool:
        with psycopg.connect(settings.owner_url) as connection:
            query = "SELECT stores ? %s FROM deletions WHERE id = %s"
            row = connection.execute(query, (store, deletion_id)).fetchone()
        return bool(row and row[0])

    await asyncio.to_thread(wait_until, reported, DEADLINE_S)


async def _request(database: Database, tenant: UUID, voice: str) -> UUID:
    request = Request(ObjectKind.VOICE, UUID(voice), Reason.REQUESTED, "key:test", "127.0.0.1")
    async with database.transaction(tenant=tenant) as connection:
        deletion = await request_deletion(connection, tenant, request)
    assert deletion is not None
    return deletion.id


async def test_postgres_lost_and_celery_killed_in_mid_deletion_lose_nothing(
    start_stack: StartStack, make_speaker: MakeSpeaker, make_api: MakeApi, settings: Settings, database: Database
) -> None:
    """After the key was destroyed and before the rows are, each in turn: it is completed, with one receipt."""
    stack = start_stack(task_limit_s=6)
    speaker = await make_speaker(stack, "acme", "low")
    second = await speaker.client.voice(await _enrol_another(speaker))
    tenant, api = await _tenant_of(settings, speaker.voice), make_api(stack, speaker)
    killed, cut_off = [await _request(database, tenant, voice) for voice in (speaker.voice, second.id)]
    with psycopg.connect(settings.owner_url) as holder:
        holder.execute("SELECT 1 FROM voices WHERE id = %s FOR UPDATE", (speaker.voice,))
        send_deletion(make_celery(settings), tenant, killed)
        await _wait_for_store(settings, str(killed), "keys")
        stack.kill("celery")
        holder.rollback()
    assert (await api.deletion(str(killed)))["state"] == "running"
    await _close_while_rows_wait(stack, settings, tenant, cut_off, second.id)
    for deletion_id, voice in ((killed, speaker.voice), (cut_off, second.id)):
        done = await api.wait_done(str(deletion_id))
        assert (done["stores"]["keys"]["count"], done["stores"]["rows"]["outcome"]) == (1, "done")
        async with database.transaction(tenant=tenant) as connection:
            keys = await load_public_keys(connection)
        assert verify_receipt(done["receipt"], keys).object.matches(UUID(voice))


async def _close_while_rows_wait(
    stack: RunningStack, settings: Settings, tenant: UUID, deletion: UUID, voice: str
) -> None:
    holder = psycopg.connect(settings.owner_url)
    holder.execute("SELECT 1 FROM voices WHERE id = %s FOR UPDATE", (voice,))
    stack.start("celery")
    send_deletion(make_celery(settings), tenant, deletion)
    await _wait_for_store(settings, str(deletion), "keys")
    _set_open(settings, False)
    holder.close()
    _set_open(settings, True)


async def _enrol_another(speaker: Speaker) -> str:
    consent = await speaker.client.create_consent("Nobody", "The recording is synthetic.")
    pending = await speaker.client.enroll("high", consent.id, SAMPLES["high"].read_bytes())
    return (await speaker.client.wait_ready(pending.id)).id


async def test_a_withdrawn_consent_ends_speech_at_once_and_deletes_its_voices(
    start_stack: StartStack, make_speaker: MakeSpeaker, make_api: MakeApi
) -> None:
    """Whoever hears the voice is told, nobody can open it any more, and consent and voice have a receipt each."""
    stack = start_stack(run_ahead_ms=600_000)
    speaker = await make_speaker(stack, "acme", "low")
    api, came, started = make_api(stack, speaker), list[float](), asyncio.Event()
    consent = (await api.http.get(f"/v1/voices/{speaker.voice}")).json()["consent"]
    async with speaker.client.connect() as connection:
        context = await connection.open(speaker.voice)
        listening = asyncio.create_task(_listen(context, came, started))
        await context.send(LONG_TEXT)
        await started.wait()
        answer = await api.http.post(f"/v1/consents/{consent}/withdraw", timeout=30)
        acknowledged_at = time.monotonic()
        assert await listening == "voice_unavailable"
        assert max(came) <= acknowledged_at + STOPS_WITHIN_S
        with pytest.raises(RelayError):
            await hear(await connection.open(speaker.voice))
    assert answer.status_code in (200, 202)
    for deletion in answer.json()["deletions"]:
        assert (await api.wait_done(deletion["id"]))["receipt"]
    assert await speaker.client.voices() == []


async def test_a_disabled_voice_falls_silent_and_speaks_again_when_it_is_enabled(
    start_stack: StartStack, make_speaker: MakeSpeaker, make_api: MakeApi
) -> None:
    """Whoever hears it is told at once; enabled, it says the same as before, and disabled again it is silent again."""
    stack = start_stack(only=SPEECH, run_ahead_ms=600_000)
    speaker = await make_speaker(stack, "acme", "low")
    reference = (await speaker.speak("All is well.")).pcm
    api = make_api(stack, speaker)
    for _ in range(2):
        came, started = list[float](), asyncio.Event()
        async with speaker.client.connect() as connection:
            context = await connection.open(speaker.voice)
            listening = asyncio.create_task(_listen(context, came, started))
            await context.send(LONG_TEXT)
            await started.wait()
            assert (await api.http.post(f"/v1/voices/{speaker.voice}/disable")).status_code == 200
            acknowledged_at = time.monotonic()
            assert await listening == "voice_unavailable"
        assert max(came) <= acknowledged_at + STOPS_WITHIN_S
        with pytest.raises(RelayError):
            await speaker.speak("Nobody hears this.")
        assert (await api.http.post(f"/v1/voices/{speaker.voice}/enable")).status_code == 200
        assert (await speaker.speak("All is well.")).pcm == reference


async def test_a_deleted_tenant_is_heard_no_more_and_its_neighbour_speaks_on(
    start_stack: StartStack, make_speaker: MakeSpeaker, make_api: MakeApi
) -> None:
    """Its voices end, its keys end with the deletion, and what another tenant has is untouched."""
    stack = start_stack(run_ahead_ms=600_000)
    speaker, neighbour = await make_speaker(stack, "acme", "low"), await make_speaker(stack, "other", "high")
    reference = (await neighbour.speak("All is well.")).pcm
    api, came, started = make_api(stack, speaker), list[float](), asyncio.Event()
    async with speaker.client.connect() as connection:
        context = await connection.open(speaker.voice)
        listening = asyncio.create_task(_listen(context, came, started))
        await context.send(LONG_TEXT)
        await started.wait()
        answer = await api.http.delete("/v1/admin/tenant", params={"confirm": "acme"}, timeout=30)
        acknowledged_at = time.monotonic()
        assert answer.status_code in (200, 202), answer.text
        # With the deletion the key ends as well, and closes the connection, if that comes first.
        (ended,) = await asyncio.wait_for(asyncio.gather(listening, return_exceptions=True), DEADLINE_S)
        assert ended == "voice_unavailable" or isinstance(ended, ConnectionLost)
    assert max(came) <= acknowledged_at + STOPS_WITHIN_S
    await api.wait_refused()
    assert (await neighbour.speak("All is well.")).pcm == reference


async def test_after_a_deletion_no_dump_and_no_log_holds_anything_of_the_voice(
    start_stack: StartStack, make_speaker: MakeSpeaker, make_api: MakeApi, settings: Settings, servers: Servers
) -> None:
    """Every table, every key of Redis and the log are searched for the recording, the embedding, the consent and the
    text, in the clear, and for the ciphertexts and the name of what was deleted; the files of Redis for the text."""
    stack = start_stack()
    speaker = await make_speaker(stack, "acme", "low")
    api = make_api(stack, speaker)
    await api.http.patch(f"/v1/voices/{speaker.voice}", json={"name": "Nameless Narrator"})
    text = "Zanzibar zeppelins zigzag."
    assert (await speaker.speak(text)).pcm
    assert servers.valkey is not None
    journal = servers.valkey.command.folder
    assert any(b"Zanzibar" in content for content in _read_files(journal)), "the search sees nothing"
    with psycopg.connect(settings.owner_url) as connection:
        query = "SELECT recording, embedding FROM voice_versions WHERE voice_id = %s"
        ciphertexts = connection.execute(query, (speaker.voice,)).fetchone()
        wrapped = connection.execute(
            "SELECT wrapped_key FROM keyring.data_keys WHERE owner_id = %s", (speaker.voice,)
        ).fetchone()
    assert ciphertexts is not None and wrapped is not None
    consent = (await api.http.get(f"/v1/voices/{speaker.voice}")).json()["consent"]
    answer = await api.http.post(f"/v1/consents/{consent}/withdraw", timeout=30)
    for deletion in answer.json()["deletions"]:
        await api.wait_done(deletion["id"])
    secrets = [SAMPLES["low"].read_bytes()[20_000:20_032], *(sealed[:32] for sealed in ciphertexts), wrapped[0][:32]]
    words = ["Zanzibar", "The recording is synthetic.", "Nobody", "Nameless Narrator"]
    secrets += [word.encode() for word in words]
    everything = {"rows": _dump_rows(settings), "redis": _dump_redis(settings), "log": stack.log.read_bytes()}
    assert speaker.voice.encode() in everything["rows"], "the search sees nothing"
    for place, content in everything.items():
        for secret in secrets:
            assert secret not in content, (place, secret)
            assert secret.hex().encode() not in content, (place, secret)
    await asyncio.to_thread(wait_until, lambda: not any(b"Zanzibar" in content for content in _read_files(journal)))


def _read_files(folder: Path) -> list[bytes]:
    found = []
    for path in folder.rglob("*"):
        # The server replaces its files while they are read.
        with contextlib.suppress(FileNotFoundError):
            found += [path.read_bytes()] if path.is_file() else []
    return found


def _dump_rows(settings: Settings) -> bytes:
    """Every row of every table, as COPY writes it."""
    query = (
        "SELECT table_schema, table_name FROM information_schema.tables"
        " WHERE table_schema IN ('public', 'keyring') AND table_type = 'BASE TABLE'"
    )
    found = []
    with psycopg.connect(settings.owner_url) as connection:
        for schema, table in connection.execute(query).fetchall():
            named = sql.SQL("COPY {} TO STDOUT").format(sql.Identifier(schema, table))
            with connection.cursor().copy(named) as copy:
                found += [bytes(row) for row in copy]
    return b"\n".join(found)


def _dump_redis(settings: Settings) -> bytes:
    """Every key and what is under it; lists and streams also item by item, since a dump may be compressed."""
    found: list[bytes] = []
    with blocking_redis.Redis.from_url(settings.redis_url) as client:
        for key in client.scan_iter():
            found += [key, client.dump(key) or b""]
            kind = client.type(key)
            if kind == b"stream":
                found += [repr(row).encode() for row in client.xrange(key)]
            elif kind == b"list":
                found += client.lrange(key, 0, -1)
            elif kind == b"hash":
                found += [part for pair in client.hgetall(key).items() for part in pair]
            elif kind == b"string":
                found.append(client.get(key) or b"")
    return b"\n".join(found)


async def test_what_is_not_there_cannot_be_deleted(
    start_stack: StartStack, make_speaker: MakeSpeaker, make_api: MakeApi
) -> None:
    """Another tenant's voice and one that never was are answered alike, and the voice speaks on."""
    stack = start_stack(only=SPEECH)
    speaker, stranger = await make_speaker(stack, "acme", "low"), await make_speaker(stack, "other", "high")
    answers = [await make_api(stack, stranger).delete(voice) for voice in (speaker.voice, str(uuid4()))]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert (await speaker.speak("Still here.")).pcm
