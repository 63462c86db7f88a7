"""storage.evidence.deletions and storage.evidence.erasure, over real servers: voices."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from pydantic import SecretStr
from redis.asyncio import Redis
from sqlalchemy import func, select

from storage.cold_jobs import make_celery, send_enrolment
from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.errors import IllegalTransition, ServerUnavailable
from storage.evidence import erasure as erasures
from storage.evidence.audit import read_audit
from storage.evidence.deletions import (
    Deletion,
    ObjectKind,
    Outcome,
    Reason,
    Request,
    StoreReport,
    begin_attempt,
    due_deletions,
    find_deletion,
    list_deletions,
    request_deletion,
    request_deletions,
)
from storage.evidence.erasure import STORES, Erasure, choose_backoff
from storage.evidence.receipts import verify_receipt
from storage.evidence.scenes import Rows, Traces
from storage.evidence.signing import load_public_keys, load_signer
from storage.paging import Page
from storage.redis import DEAD_LETTER, connect, silenced_key
from storage.settings import Settings
from storage.states import DeletionState
from storage.streams.broadcasts import Silence, acknowledge_silence
from storage.streams.jobs import JobStream
from storage.streams.presence import announce_worker, withdraw_worker
from storage.streams.wire import Job
from storage.tables import data_keys, idempotency_keys, voice_aliases, voice_versions
from storage.tenancy.idempotency import Begun, Finished, begin, finish
from storage.voices.aliases import set_alias
from storage.voices.versions import Enrolled, complete_enrolment, load_upload
from storage.voices.voices import find_voice
from tests.conftest import MakeTenant, MakeVoice

ACTOR, ORIGIN = "key:test", "127.0.0.1"
RAW = bytes(range(256)) * 4


@pytest.fixture
async def redis(settings: Settings) -> AsyncIterator[Redis]:
    client = connect(settings.redis_url)
    yield client
    await client.aclose()


@pytest.fixture
def erasure(database: Database, redis: Redis, keyring: Keyring) -> Erasure:
    return Erasure(database, redis, keyring)


@pytest.fixture
async def tenant(make_tenant: MakeTenant) -> UUID:
    return (await make_tenant("acme")).id


async def _request(database: Database, tenant: UUID, voice: UUID) -> Deletion:
    request = Request(ObjectKind.VOICE, voice, Reason.REQUESTED, ACTOR, ORIGIN)
    async with database.transaction(tenant=tenant) as connection:
        deletion = await request_deletion(connection, tenant, request)
    assert deletion is not None
    return deletion


async def _count(database: Database, tenant: UUID, table: Any, *where: Any) -> int:
    async with database.transaction(tenant=tenant) as connection:
        return int((await connection.execute(select(func.count()).select_from(table).where(*where))).scalar_one())


async def _actions(database: Database, tenant: UUID) -> list[str]:
    async with database.transaction(tenant=tenant) as connection:
        return [entry.action for entry in await read_audit(connection, tenant)]


async def test_a_deleted_voice_is_nowhere_and_a_receipt_says_so(
    database: Database, keyring: Keyring, redis: Redis, erasure: Erasure, tenant: UUID, make_voice: MakeVoice
) -> None:
    """Its key, its rows, its aliases, its text and what was answered about it are gone; its neighbour is whole."""
    voice, neighbour = await make_voice(tenant, embedding=RAW), await make_voice(tenant, embedding=RAW)
    async with database.transaction(tenant=tenant) as connection:
        assert await set_alias(connection, tenant, "narrator", voice)
        begun = await begin(connection, keyring, tenant, "k1", b"body")
        assert isinstance(begun, Begun)
        await finish(connection, tenant, "k1", 201, {"id": str(voice), "name": "demo"})
    jobs = JobStream(redis)
    await jobs.ensure_group()
    await jobs.submit(Job("relay", "c", 0, tenant, voice, 1, 0, "secret words"))
    await redis.xadd(DEAD_LETTER, {"voice": str(voice)})
    deletion = await erasure.run(tenant, (await _request(database, tenant, voice)).id)
    assert deletion.state is DeletionState.DONE
    assert set(deletion.stores) == {store.name for store in STORES[ObjectKind.VOICE]}
    counts = {name: report.count for name, report in deletion.stores.items()}
    assert {name: counts[name] for name in ("speech", "keys", "rows", "jobs", "dead_letter", "idempotency")} == {
        "speech": 1,
        "keys": 1,
        "rows": 2,
        "jobs": 1,
        "dead_letter": 1,
        "idempotency": 1,
    }
    for table, column in ((data_keys, "owner_id"), (voice_versions, "voice_id"), (voice_aliases, "voice_id")):
        assert await _count(database, tenant, table, table.c[column] == voice) == 0
    assert await _count(database, tenant, data_keys, data_keys.c.owner_id == neighbour) == 1
    async with database.transaction(tenant=tenant) as connection:
        assert await find_voice(connection, tenant, voice) is None
        assert await find_voice(connection, tenant, neighbour) is not None
        assert await begin(connection, keyring, tenant, "k1", b"body") == Finished(201, None)
        keys = await load_public_keys(connection)
    assert deletion.receipt is not None
    receipt = verify_receipt(deletion.receipt, keys)
    assert receipt.object.matches(voice)
    assert str(voice) not in deletion.receipt
    assert (await _actions(database, tenant))[-2:] == ["voice.deletion_requested", "voice.deleted"]
    assert receipt.audit_head.sequence == len(await _actions(database, tenant))


async def test_two_who_delete_at_once_get_one_deletion(
    database: Database, erasure: Erasure, tenant: UUID, make_voice: MakeVoice
) -> None:
    """Requested and carried out by five at once, there is one record, one receipt and one entry in the audit log."""
    voice = await make_voice(tenant, embedding=RAW)
    requested = await asyncio.gather(*(_request(database, tenant, voice) for _ in range(5)))
    assert len({deletion.id for deletion in requested}) == 1
    done = await asyncio.gather(*(erasure.run(tenant, requested[0].id) for _ in range(3)))
    assert {deletion.state for deletion in done} == {DeletionState.DONE}
    assert len({deletion.receipt for deletion in done}) == 1
    actions = await _actions(database, tenant)
    assert actions.count("voice.deletion_requested") == actions.count("voice.deleted") == 1
    assert (await _request(database, tenant, voice)).receipt == done[0].receipt


async def test_two_who_delete_several_in_different_orders_do_not_wait_for_each_other(
    database: Database, tenant: UUID, make_voice: MakeVoice
) -> None:
    """Nobody takes a place in the audit log before all its voices are locked."""
    voices = sorted([await make_voice(tenant, embedding=RAW) for _ in range(3)])
    requests = [Request(ObjectKind.VOICE, voice, Reason.REQUESTED, ACTOR, ORIGIN) for voice in voices]

    async def delete_all() -> list[Deletion | None]:
        async with database.transaction(tenant=tenant) as connection:
            return await request_deletions(connection, tenant, requests)

    all_at_once, alone = await asyncio.gather(delete_all(), _request(database, tenant, voices[-1]))
    assert [deletion.object_id for deletion in all_at_once if deletion is not None] == voices
    assert all_at_once[-1] is not None
    assert all_at_once[-1].id == alone.id
    assert (await _actions(database, tenant)).count("voice.deletion_requested") == 3


async def test_what_is_not_there_or_another_tenants_cannot_be_deleted(
    database: Database, tenant: UUID, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """Neither leaves a record, and another tenant's voice stays as it is."""
    other = (await make_tenant("other")).id
    voice = await make_voice(other, embedding=RAW)
    for kind, wanted in ((ObjectKind.VOICE, voice), (ObjectKind.CONSENT, uuid4()), (ObjectKind.TENANT, other)):
        request = Request(kind, wanted, Reason.REQUESTED, ACTOR, ORIGIN)
        async with database.transaction(tenant=tenant) as connection:
            assert await request_deletion(connection, tenant, request) is None
            assert (await list_deletions(connection, tenant, Page())).items == ()
    async with database.transaction(tenant=other) as connection:
        assert await find_voice(connection, other, voice) is not None


async def test_a_silent_worker_makes_it_partial_until_it_obeys_or_is_gone(
    database: Database, redis: Redis, erasure: Erasure, tenant: UUID, make_voice: MakeVoice
) -> None:
    """The data is destroyed all the same; the store `workers` says how many are missing, and an attempt is due."""
    voices = [await make_voice(tenant, embedding=RAW) for _ in range(2)]
    deletions = []
    for voice in voices:
        await announce_worker(redis, "stopped")
        deletions.append(await erasure.run(tenant, (await _request(database, tenant, voice)).id))
    for deletion in deletions:
        assert deletion.state is DeletionState.PARTIAL
        report = deletion.stores["workers"]
        assert (report.outcome, report.detail) == (Outcome.PENDING, "1 of 1 workers have not acknowledged")
        others = [report.outcome for name, report in deletion.stores.items() if name != "workers"]
        assert set(others) == {Outcome.DONE}
        assert deletion.next_attempt_at > datetime.now(UTC)
    async with database.transaction(tenant=tenant) as connection:
        soon = datetime.now(UTC) + timedelta(seconds=10)
        assert set(await due_deletions(connection, tenant, soon)) == {deletion.id for deletion in deletions}
    await announce_worker(redis, "stopped")
    token: Any = await redis.get(silenced_key(voices[0]))
    await acknowledge_silence(redis, Silence(voices[0], token.decode()), "stopped")
    done = await erasure.run(tenant, deletions[0].id)
    assert (done.state, done.stores["workers"].count) == (DeletionState.DONE, 1)
    await withdraw_worker(redis, "stopped")
    assert (await erasure.run(tenant, deletions[1].id)).state is DeletionState.DONE


async def test_a_worker_is_not_waited_for_longer_than_it_keeps_an_embedding(
    database: Database,
    redis: Redis,
    erasure: Erasure,
    tenant: UUID,
    make_voice: MakeVoice,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that is alive and deaf has forgotten by itself when its cache time is over."""
    await announce_worker(redis, "deaf")
    deletion = await _request(database, tenant, await make_voice(tenant, embedding=RAW))
    assert (await erasure.run(tenant, deletion.id)).state is DeletionState.PARTIAL
    monkeypatch.setattr("storage.evidence.voice_stores.EMBEDDING_TTL_S", 0)
    await announce_worker(redis, "deaf")
    done = await erasure.run(tenant, deletion.id)
    assert done.state is DeletionState.DONE
    assert "did not acknowledge" in done.stores["workers"].detail


async def test_without_redis_the_key_is_destroyed_and_the_rest_is_done_later(
    database: Database, redis: Redis, keyring: Keyring, erasure: Erasure, tenant: UUID, make_voice: MakeVoice
) -> None:
    """Each store in Redis says so, nobody waits for long, and the attempt after is the last."""
    voice = await make_voice(tenant, embedding=RAW)
    away = connect("unix:///nowhere/at/all.sock")
    deletion = await _request(database, tenant, voice)
    partial = await Erasure(database, away, keyring).run(tenant, deletion.id)
    await away.aclose()
    assert partial.state is DeletionState.PARTIAL
    assert (partial.stores["speech"].outcome, partial.stores["speech"].detail) == (
        Outcome.FAILED,
        "Redis does not answer",
    )
    assert {partial.stores[name].outcome for name in ("keys", "rows", "idempotency")} == {Outcome.DONE}
    assert await _count(database, tenant, data_keys, data_keys.c.owner_id == voice) == 0
    assert (await erasure.run(tenant, deletion.id)).state is DeletionState.DONE


@pytest.mark.parametrize("killed_at", [store.name for store in STORES[ObjectKind.VOICE]])
@pytest.mark.parametrize("reported", [False, True])
async def test_killed_in_any_step_the_next_attempt_comes_to_the_same_end(
    database: Database,
    erasure: Erasure,
    tenant: UUID,
    make_voice: MakeVoice,
    monkeypatch: pytest.MonkeyPatch,
    killed_at: str,
    reported: bool,
) -> None:
    """Ended before or after a step's work, with nothing run of what follows: what it counted is not lost or doubled."""
    voice = await make_voice(tenant, embedding=RAW)
    deletion = await _request(database, tenant, voice)

    class Killed(BaseException):
        pass

    async def die(*parts: Any) -> Any:
        if reported:
            await store.erase(*parts)
        raise Killed

    stores = STORES[ObjectKind.VOICE]
    (store,) = [store for store in stores if store.name == killed_at]
    broken: Rows | Traces = type(store)(store.name, die, store.needs)
    changed = tuple(broken if known is store else known for known in stores)
    monkeypatch.setattr(erasures, "STORES", {ObjectKind.VOICE: changed})
    with pytest.raises(Killed):
        await erasure.run(tenant, deletion.id)
    monkeypatch.undo()
    async with database.transaction(tenant=tenant) as connection:
        found = await find_deletion(connection, tenant, deletion.id)
        later = datetime.now(UTC) + timedelta(minutes=2)
        assert await due_deletions(connection, tenant, later) == [deletion.id]
    assert found is not None
    assert found.state is DeletionState.RUNNING
    done = await erasure.run(tenant, deletion.id)
    assert done.state is DeletionState.DONE
    assert (done.stores["keys"].count, done.stores["rows"].count) == (1, 1)


async def test_a_fault_in_one_store_is_reported_and_keeps_nothing_from_the_others(
    database: Database, erasure: Erasure, tenant: UUID, make_voice: MakeVoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What needs the broken store waits, everything else is done, and the reason holds nothing of anybody's."""

    async def break_down(*_: Any) -> Any:
        raise ValueError("secret words")

    stores = tuple(Rows("keys", break_down) if store.name == "keys" else store for store in STORES[ObjectKind.VOICE])
    monkeypatch.setattr(erasures, "STORES", {ObjectKind.VOICE: stores})
    deletion = await erasure.run(tenant, (await _request(database, tenant, await make_voice(tenant))).id)
    assert deletion.state is DeletionState.PARTIAL
    assert deletion.stores["keys"].outcome is Outcome.FAILED
    assert "secret" not in deletion.stores["keys"].detail
    assert (deletion.stores["rows"].outcome, deletion.stores["rows"].detail) == (Outcome.PENDING, "comes after keys")
    assert deletion.stores["idempotency"].outcome is Outcome.DONE


async def test_without_the_root_key_there_is_no_receipt_yet(
    database: Database, redis: Redis, keyring: Keyring, settings: Settings, tenant: UUID, make_voice: MakeVoice
) -> None:
    """Destroying needs no key; signing does, and is tried again."""

    async with database.transaction(tenant=tenant) as connection:
        await load_signer(connection, keyring)
    other = settings.model_copy(update={"root_key": SecretStr(base64.b64encode(bytes(32)).decode())})
    voice = await make_voice(tenant, embedding=RAW)
    deletion = await _request(database, tenant, voice)
    partial = await Erasure(database, redis, Keyring.from_settings(other)).run(tenant, deletion.id)
    assert partial.state is DeletionState.PARTIAL
    assert partial.stores["receipt"].outcome is Outcome.FAILED
    assert await _count(database, tenant, data_keys, data_keys.c.owner_id == voice) == 0
    done = await Erasure(database, redis, keyring).run(tenant, deletion.id)
    assert done.state is DeletionState.DONE
    assert "receipt" not in done.stores


async def test_deleted_during_its_enrolment_nothing_stays(
    database: Database,
    redis: Redis,
    keyring: Keyring,
    erasure: Erasure,
    settings: Settings,
    tenant: UUID,
    make_voice: MakeVoice,
) -> None:
    """The task that waits goes, the upload goes, and whoever had begun cannot complete."""
    voice = await make_voice(tenant)
    send_enrolment(make_celery(settings), tenant, voice, 1)
    deletion = await _request(database, tenant, voice)
    with pytest.raises(IllegalTransition):
        async with database.transaction(tenant=tenant) as connection:
            await complete_enrolment(connection, keyring, tenant, voice, 1, Enrolled(b"r", RAW, 6.0, 90, {}))
    done = await erasure.run(tenant, deletion.id)
    assert (done.state, done.stores["celery"].count) == (DeletionState.DONE, 1)
    async with database.transaction(tenant=tenant) as connection:
        assert await load_upload(connection, keyring, tenant, voice, 1) is None
    assert await _count(database, tenant, idempotency_keys) == 0


async def test_an_attempt_is_nobody_elses_while_it_may_still_run(
    database: Database, tenant: UUID, make_voice: MakeVoice
) -> None:
    """It is due again only when whoever began it must be dead."""
    deletion = await _request(database, tenant, await make_voice(tenant))
    now = datetime.now(UTC)
    async with database.transaction(tenant=tenant) as connection:
        assert await due_deletions(connection, tenant, now + timedelta(seconds=1)) == [deletion.id]
        begun = await begin_attempt(connection, tenant, deletion.id, now + timedelta(seconds=60))
        assert begun is not None
        assert begun.attempts == 1
        assert await due_deletions(connection, tenant, now + timedelta(seconds=59)) == []


@pytest.mark.parametrize(
    ("attempts", "outcome", "expected"),
    [
        (1, Outcome.PENDING, 2.0),
        (2, Outcome.FAILED, 4.0),
        (9, Outcome.PENDING, 10.0),
        (9, Outcome.FAILED, 300.0),
        (10_000, Outcome.FAILED, 300.0),
    ],
)
def test_what_fails_is_tried_less_and_less_often_and_what_only_waits_is_not(
    attempts: int, outcome: Outcome, expected: float
) -> None:
    """A tenant with many voices goes on where it was; a server that is away is not stormed."""
    report = StoreReport(outcome, 0, datetime.now(UTC))
    assert choose_backoff(attempts, {"workers": report}) == expected


async def test_without_postgres_nothing_is_lost(settings: Settings, redis: Redis, keyring: Keyring) -> None:
    """The attempt says that it could not begin; the record stands where it stood."""
    nowhere = Database("postgresql://nobody@/none?host=/nowhere", "")
    with pytest.raises(ServerUnavailable):
        await Erasure(nowhere, redis, keyring).run(uuid4(), uuid4())
    await nowhere.close()
