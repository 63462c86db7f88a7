"""storage.evidence.audit over a real Postgres: what gets into the log, who may read it, and that nobody changes it."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.evidence.audit import (
    GENESIS,
    PLATFORM,
    Act,
    Detail,
    append,
    audit_key,
    hash_entry,
    hash_text,
    read_audit,
    read_head,
)
from storage.evidence.canonical import canonical
from storage.settings import Settings
from storage.states import VoiceState

TENANT = UUID("6d1f6a3e-2a9b-4f0a-9d55-5a6a4f4f9b11")
OTHER = UUID("0f3b5c0a-98cf-4a8f-8b0f-0a4b7d5a9e22")
NOON = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)


def act(number: int = 0, *, action: str = "voice.created", at: datetime | None = None, detail: Detail = {}) -> Act:  # noqa: B006
    return Act("key:7", action, "voice", f"v{number}", "192.0.2.7", detail, at)


@pytest.fixture
async def owner(settings: Settings) -> AsyncIterator[Database]:
    opened = Database.for_owner(settings)
    yield opened
    await opened.close()


async def record(database: Database, *acts: Act, tenant: UUID = TENANT) -> None:
    async with database.transaction(tenant=tenant) as connection:
        await append(connection, tenant, *acts)


async def test_what_was_done_is_read_as_it_was_written(database: Database) -> None:
    """An entry gives back who, what, when, which object, from where, and its detail, in the order of writing."""
    detail: Detail = {
        "state": VoiceState.READY,
        "count": 3,
        "share": 0.25,
        "whole": 4.0,
        "ended": None,
        "ids": ["a", 1, True],
    }
    await record(database, act(1, at=NOON, detail=detail), act(2))
    async with database.transaction(tenant=TENANT) as connection:
        first, second = await read_audit(connection, TENANT)
        head = await read_head(connection, TENANT)
    assert (first.actor, first.action, first.object_kind, first.object_id) == ("key:7", "voice.created", "voice", "v1")
    assert (first.origin, first.at, first.sequence, first.previous_hash) == ("192.0.2.7", NOON, 1, GENESIS)
    assert first.detail == {**detail, "state": "ready", "whole": 4}
    assert (second.sequence, second.previous_hash) == (2, first.hash)
    assert (head.sequence, head.hash) == (2, second.hash)


async def test_entries_are_filtered_and_paged(database: Database) -> None:
    """A reader asks by object, action and time, and goes on after the last sequence it has seen."""
    hours = [NOON + timedelta(hours=hour) for hour in range(6)]
    await record(
        database, *(act(hour % 2, action=f"voice.{'ab'[hour % 3 == 0]}", at=at) for hour, at in enumerate(hours))
    )
    async with database.transaction(tenant=TENANT) as connection:

        async def sequences(**filters: object) -> list[int]:
            return [entry.sequence for entry in await read_audit(connection, TENANT, **filters)]  # type: ignore[arg-type]

        assert await sequences(object_id="v1") == [2, 4, 6]
        assert await sequences(action="voice.b") == [1, 4]
        assert await sequences(since=hours[2], until=hours[4]) == [3, 4]
        assert await sequences(after_sequence=2, limit=3) == [3, 4, 5]
        assert await sequences(object_id="v1", action="voice.b") == [4]


async def test_the_platform_has_a_chain_of_its_own(database: Database) -> None:
    """What the operator does to the whole service stands under the nil id, written in the operator's role."""
    async with database.transaction(tenant=PLATFORM, operator=True) as connection:
        await append(connection, PLATFORM, act())
        assert (await read_head(connection, PLATFORM)).sequence == 1
        assert (await read_head(connection, TENANT)).sequence == 0


async def test_an_act_that_fails_leaves_no_entry(database: Database) -> None:
    """An entry is written in the transaction that it records: both are there, or neither."""
    with pytest.raises(RuntimeError):
        async with database.transaction(tenant=TENANT) as connection:
            await append(connection, TENANT, act())
            raise RuntimeError
    async with database.transaction(tenant=TENANT) as connection:
        assert await read_audit(connection, TENANT) == []


async def test_another_tenant_neither_reads_nor_writes_the_log(database: Database) -> None:
    """Row-level security keeps the logs apart, whatever the query says."""
    await record(database, act())
    async with database.transaction(tenant=OTHER) as connection:
        assert await read_audit(connection, TENANT) == []
        assert (await connection.execute(text("SELECT count(*) FROM audit_log"))).scalar() == 0
    with pytest.raises(DBAPIError, match="row-level security"):
        async with database.transaction(tenant=OTHER) as connection:
            await append(connection, TENANT, act())


CHANGES = ("UPDATE {table} SET sequence = 7", "DELETE FROM {table}", "TRUNCATE {table}")


@pytest.mark.parametrize("table", ["audit_log", "audit_checkpoints"])
@pytest.mark.parametrize("change", CHANGES)
async def test_nobody_changes_the_log(database: Database, owner: Database, table: str, change: str) -> None:
    """The service has no right to change the log, and a trigger refuses it to the tables' owner."""
    await record(database, act())
    statement = text(change.format(table=table))
    with pytest.raises(DBAPIError, match="permission denied"):
        async with database.transaction(tenant=TENANT) as connection:
            await connection.execute(statement)
    with pytest.raises(DBAPIError, match="append-only"):
        async with owner.transaction(tenant=TENANT) as connection:
            await connection.execute(statement)


BAD_DETAILS: dict[str, object] = {
    "a sentence": {"note": "Please call me back tomorrow."},
    "a long word": {"note": "a" * 129},
    "bytes": {"recording": b"fLaC"},
    "an embedding": {"vector": [0.5] * 256},
    "an object": {"voice": {"name": "x"}},
    "a list of lists": {"voice": [[1]]},
    "no number": {"share": float("nan")},
    "a number beyond 2^53": {"count": 2**53},
    "an id object": {"id": uuid4()},
    "a long name": {"n" * 41: 1},
    "too much of it": {f"n{number}": ["a" * 100] * 10 for number in range(5)},
    "a line break": {"note": "a\nb"},
    "a letter beyond ASCII": {"note": "é"},
}


@pytest.mark.parametrize("detail", BAD_DETAILS.values(), ids=BAD_DETAILS.keys())
def test_no_text_and_no_voice_gets_into_the_log(detail: object) -> None:
    """Detail takes words, numbers and short lists of them, and refuses everything that could be somebody's data."""
    with pytest.raises(ValueError, match=r"audit entry|finite|integer"):
        Act("key:7", "voice.created", "voice", "v1", "cli", detail)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changed",
    [
        {"actor": "Jane Doe"},
        {"action": "created"},
        {"object_kind": "Voice"},
        {"object_id": ""},
        {"origin": "x" * 129},
        {"at": datetime(2026, 1, 1)},
    ],
    ids=str,
)
def test_an_act_is_of_words(changed: dict[str, object]) -> None:
    """Actor, action, object and origin are words, and a time has its zone."""
    told = {"actor": "key:7", "action": "voice.created", "object_kind": "voice", "object_id": "v1", "origin": "cli"}
    with pytest.raises(ValueError, match="audit entry"):
        Act(**{**told, **changed})  # type: ignore[arg-type]


async def test_a_text_is_kept_as_a_keyed_hash(database: Database, keyring: Keyring) -> None:
    """The same text hashes alike for one tenant and differently for another; two who make the key at once get one."""

    async def key_of(tenant: UUID) -> str:
        async with database.transaction(tenant=tenant) as connection:
            return hash_text(await audit_key(connection, keyring, tenant), "Good morning.")

    hashes = await asyncio.gather(*(key_of(TENANT) for _ in range(4)))
    assert len(set(hashes)) == 1
    assert len(hashes[0]) == 64
    assert await key_of(OTHER) != hashes[0]


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(1e-6, 1e20)
    | st.floats(-1e20, -1e-6)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_the_canonical_form_loses_nothing(value: object) -> None:
    """Two values of one form are one value: a reader of JSON gets back from the form what went in."""
    try:
        form = canonical(value)
    except UnicodeEncodeError:
        return
    read = json.loads(form, parse_int=float)
    assert typed(read) == typed(value)
    assert canonical(read) == form


def typed(value: object) -> object:
    """A value in which True is not 1; and a whole float is its integer, which JSON does not tell apart."""
    if isinstance(value, dict):
        return {name: typed(item) for name, item in value.items()}
    if isinstance(value, list):
        return [typed(item) for item in value]
    return ("number", float(value)) if isinstance(value, int | float) and not isinstance(value, bool) else (value,)


def test_the_canonical_form_is_that_of_the_standard() -> None:
    """RFC 8785: sorted by UTF-16 units, no spaces, ECMAScript's numbers, the short escapes."""
    value = {
        "\U0001f600": 1.0,
        "\ufb33": 333333333.33333329,
        "1": [1e-6, 4.50, 1e20, -0.0],
        "\r": "\u20ac$\u000f\nA'\"\\",
    }
    expected = (
        '{"\\r":"€$\\u000f\\nA\'\\"\\\\","1":[0.000001,4.5,100000000000000000000,0],"😀":1,"\ufb33":333333333.3333333}'
    )
    assert canonical(value).decode() == expected


def test_an_entry_has_the_hash_that_the_docs_tell() -> None:
    """docs/evidence.md: SHA-256 over this text; were the form to change, every log there is would be broken."""
    told = ("key:7", "voice.created", "voice", "v1", "192.0.2.7", {"share": 0.25, "count": 3})
    form = (
        '{"action":"voice.created","actor":"key:7","at":1772366400123456,"detail":{"count":3,"share":0.25},"format":1,'
        '"object_id":"v1","object_kind":"voice","origin":"192.0.2.7","previous":"' + "0" * 64 + '","sequence":1,'
        '"tenant":"6d1f6a3e-2a9b-4f0a-9d55-5a6a4f4f9b11"}'
    )
    assert hash_entry(TENANT, 1, 1_772_366_400_123_456, told, GENESIS) == hashlib.sha256(form.encode()).digest()


async def test_times_are_kept_to_the_microsecond_in_any_zone(database: Database) -> None:
    """An act's own time may come with any zone; its hash is over the moment."""
    at = NOON.astimezone(timezone(timedelta(hours=5, minutes=30)))
    await record(database, act(1, at=at))
    async with database.transaction(tenant=TENANT) as connection:
        (entry,) = await read_audit(connection, TENANT)
    assert entry.at == NOON
