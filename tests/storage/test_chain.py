"""storage.evidence.chain and checkpoints against those who would rewrite what was done, with a superuser's rights."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.evidence.audit import ACTS_LIMIT, PLATFORM, Head, hash_entry, read_audit
from storage.evidence.chain import Flaw, Verdict, holds, verify_chain
from storage.evidence.checkpoints import KIND, find_heads, list_chains, list_closed, write_checkpoint
from storage.evidence.signing import load_public_keys, load_signer, rotate_signer
from storage.settings import Settings
from storage.tables import audit_checkpoints
from tests.storage.test_audit import OTHER, TENANT, act, record

Tamper = Callable[..., Awaitable[None]]


@pytest.fixture
async def tamper(settings: Settings) -> AsyncIterator[Tamper]:
    """`await tamper(sql, ...)` as the superuser, whom neither triggers nor row-level security hold back."""
    superuser = Database(settings.owner_url, "")

    async def execute(*statements: str) -> None:
        async with superuser.transaction() as connection:
            await connection.execute(text("SET LOCAL session_replication_role = replica"))
            for statement in statements:
                await connection.execute(text(statement))

    yield execute
    await superuser.close()


async def verify(database: Database) -> Verdict:
    """As `timbrelay audit verify` does."""
    async with database.transaction(tenant=TENANT) as connection:
        heads = find_heads(connection, TENANT, await load_public_keys(connection))
        return await verify_chain(connection, TENANT, heads=heads)


async def checkpoint(database: Database, keyring: Keyring) -> Verdict:
    async with database.transaction(tenant=TENANT) as connection:
        return await write_checkpoint(connection, keyring, TENANT)


async def rewrite(database: Database, tamper: Tamper, keep: int) -> None:
    """Throw away what comes after an entry, and go on with other entries that fit, as a forger would."""
    await tamper(f"DELETE FROM audit_log WHERE sequence > {keep}")  # noqa: S608
    await record(database, *(act(100 + number) for number in range(5 - keep)))


async def test_writers_at_once_make_no_gap_and_no_fork(settings: Settings) -> None:
    """Twenty writers of ten transactions each leave one sound chain of two hundred entries and more."""
    database = Database.for_service(settings, pool_size=10)
    slots = asyncio.Semaphore(10)

    async def write(writer: int) -> None:
        for number in range(10):
            async with slots:
                await record(database, *(act(writer) for _ in range(1 + number % 2)))

    await asyncio.gather(*(write(writer) for writer in range(20)))
    async with database.transaction(tenant=TENANT) as connection:
        verdict = await verify_chain(connection, TENANT)
    await database.close()
    assert (verdict.sound, verdict.head.sequence) == (True, 300)


async def test_what_the_database_makes_of_a_detail_keeps_its_hash(database: Database) -> None:
    """Numbers of every size and sign and words of every character come back from JSONB as what was hashed."""
    draw = random.Random(5)
    floats = [draw.choice((-1, 1)) * draw.random() * 10.0 ** draw.randrange(-9, 15) for _ in range(600)]
    integers = [draw.choice((-1, 1)) * draw.randrange(2 ** draw.randrange(1, 54)) for _ in range(200)]
    words = ["".join(chr(draw.randrange(33, 127)) for _ in range(draw.randrange(1, 40))) for _ in range(200)]
    values = [*floats, *integers, *words, "", True, False, None, -0.0, 1e-7, 0.5e-6, 9007199254740991, 0.1 + 0.2]
    await record(database, *(act(detail={"one": value, "many": [value, 1]}) for value in values[:1000]))
    await record(database, *(act(detail={"one": value}) for value in values[1000:]))
    verdict = await verify(database)
    assert (verdict.flaw, verdict.head.sequence) == (None, len(values))


async def test_a_log_longer_than_a_batch_is_verified_to_its_end(database: Database) -> None:
    """The chain is read in bounded batches, and the progress told."""
    for _ in range(2):
        await record(database, *(act(number) for number in range(ACTS_LIMIT)))
    await record(database, act())
    told: list[int] = []
    async with database.transaction(tenant=TENANT) as connection:
        assert (await verify_chain(connection, TENANT, report=told.append)).head.sequence == 2 * ACTS_LIMIT + 1
    assert told == [1000, 2000, 2001]
    with pytest.raises(ValueError, match="at most"):
        await record(database, *(act() for _ in range(ACTS_LIMIT + 1)))


TAMPERING = {
    "tenant_id": (f"tenant_id = '{OTHER}'", Flaw.MISSING),
    "sequence": ("sequence = 9", Flaw.MISSING),
    "at": ("at = at + interval '1 microsecond'", Flaw.CHANGED),
    "at without end": ("at = 'infinity'", Flaw.CHANGED),
    "at far away": ("at = '200000-01-01'", Flaw.CHANGED),
    "actor": ("actor = 'key:8'", Flaw.CHANGED),
    "action": ("action = 'voice.deleted'", Flaw.CHANGED),
    "object_kind": ("object_kind = 'consent'", Flaw.CHANGED),
    "object_id": ("object_id = 'v9'", Flaw.CHANGED),
    "origin": ("origin = 'cli'", Flaw.CHANGED),
    "detail": ("""detail = '{"count": 4}'""", Flaw.CHANGED),
    "detail by nothing": ("detail = '{}'", Flaw.CHANGED),
    "detail by a number too large": ("detail = ('1' || repeat('0', 5000))::jsonb", Flaw.CHANGED),
    "detail by a deep list": ("detail = (repeat('[', 3000) || repeat(']', 3000))::jsonb", Flaw.CHANGED),
    "previous_hash": (r"previous_hash = '\x00'", Flaw.CHANGED),
    "hash": (r"hash = '\x00'", Flaw.CHANGED),
}


@pytest.mark.parametrize(("change", "flaw"), TAMPERING.values(), ids=TAMPERING.keys())
async def test_every_column_is_under_the_hash(database: Database, tamper: Tamper, change: str, flaw: Flaw) -> None:
    """Whatever the database's superuser changes in an entry, verification names that entry and why."""
    await record(database, *(act(number, detail={"count": 3}) for number in range(5)))
    await tamper(f"UPDATE audit_log SET {change} WHERE sequence = 3")  # noqa: S608
    verdict = await verify(database)
    assert (verdict.sequence, verdict.flaw, verdict.head.sequence) == (3, flaw, 2)


async def test_a_removed_entry_is_missed(database: Database, tamper: Tamper) -> None:
    """An entry that is gone leaves a gap; closing the gap breaks the link."""
    await record(database, *(act(number) for number in range(5)))
    await tamper("DELETE FROM audit_log WHERE sequence = 2")
    verdict = await verify(database)
    assert (verdict.sequence, verdict.flaw) == (2, Flaw.MISSING)
    await tamper("UPDATE audit_log SET sequence = sequence - 1 WHERE sequence > 2")
    assert (await verify(database)).sequence == 2


async def test_an_entry_that_was_hashed_anew_breaks_the_link(database: Database, tamper: Tamper) -> None:
    """A forger who hashes his entry himself is found at the next one, which tells of another hash."""
    await record(database, *(act(number) for number in range(3)))
    async with database.transaction(tenant=TENANT) as connection:
        entry = (await read_audit(connection, TENANT))[1]
    microseconds = (entry.at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    told = ("key:8", entry.action, entry.object_kind, entry.object_id, entry.origin, entry.detail)
    digest = hash_entry(TENANT, 2, microseconds, told, entry.previous_hash).hex()
    await tamper(rf"UPDATE audit_log SET actor = 'key:8', hash = '\x{digest}' WHERE sequence = 2")  # noqa: S608
    verdict = await verify(database)
    assert (verdict.sequence, verdict.flaw) == (3, Flaw.UNLINKED)


async def test_a_tail_that_was_cut_off_is_missed(database: Database, keyring: Keyring, tamper: Tamper) -> None:
    """The signed head tells of entries that are gone without a gap."""
    await record(database, *(act(number) for number in range(5)))
    assert (await checkpoint(database, keyring)).sound
    verdict = await verify(database)
    assert (verdict.sound, verdict.head.sequence, verdict.signed) == (True, 5, 5)
    await tamper("DELETE FROM audit_log WHERE sequence > 3")
    verdict = await verify(database)
    assert (verdict.sequence, verdict.flaw) == (4, Flaw.TRUNCATED)
    assert (await checkpoint(database, keyring)).flaw is Flaw.TRUNCATED
    await tamper("DELETE FROM audit_log")
    assert ((await verify(database)).sequence, (await checkpoint(database, keyring)).sound) == (1, False)


async def test_a_rewritten_chain_is_found_and_not_signed(database: Database, keyring: Keyring, tamper: Tamper) -> None:
    """A chain that is sound in itself and not the one whose head was signed does not get a new signature."""
    await record(database, *(act(number) for number in range(5)))
    await checkpoint(database, keyring)
    await rewrite(database, tamper, keep=2)
    await record(database, act())
    verdict = await verify(database)
    assert (verdict.sequence, verdict.flaw) == (5, Flaw.REWRITTEN)
    verdict = await checkpoint(database, keyring)
    assert (verdict.sequence, verdict.flaw) == (5, Flaw.REWRITTEN)


async def test_a_head_is_signed_only_by_us(database: Database, keyring: Keyring, tamper: Tamper) -> None:
    """A signed head of another chain, place or kind, or with no good signature, is worth nothing."""
    await record(database, *(act(number) for number in range(5)))
    await checkpoint(database, keyring)
    payload = {"format": 1, "tenant": str(TENANT), "sequence": 5, "hash": (await verify(database)).head.hash.hex()}
    async with database.transaction(tenant=TENANT) as connection:
        signer = await load_signer(connection, keyring)
    forged = {
        "another chain": signer.sign(KIND, {**payload, "tenant": str(OTHER)}),
        "another place": signer.sign(KIND, {**payload, "sequence": 4}),
        "another kind": signer.sign("timbrelay-deletion-receipt", payload),
        "no hash": signer.sign(KIND, {**payload, "hash": "zz"}),
        "no signature": signer.sign(KIND, payload)[:-8],
        "nothing": "",
    }
    for signed in forged.values():
        await tamper(f"UPDATE audit_checkpoints SET signed = '{signed}'")  # noqa: S608
        verdict = await verify(database)
        assert (verdict.sequence, verdict.flaw) == (5, Flaw.FORGED)
        assert (await checkpoint(database, keyring)).flaw is Flaw.FORGED
    await tamper(f"UPDATE audit_checkpoints SET signed = '{signer.sign(KIND, payload)}'")  # noqa: S608
    assert (await verify(database)).sound


async def test_only_what_has_grown_is_signed(database: Database, keyring: Keyring) -> None:
    """A chain is signed again when it has grown; two that sign at once, or with a key that is retired, are fine."""
    await record(database, act())
    await asyncio.gather(*(checkpoint(database, keyring) for _ in range(3)))
    async with database.transaction() as connection:
        await rotate_signer(connection, keyring)
    await record(database, act())
    await checkpoint(database, keyring)
    await checkpoint(database, keyring)
    async with database.transaction(tenant=TENANT) as connection:
        rows = (await connection.execute(audit_checkpoints.select())).all()
    assert [row.sequence for row in rows] == [1, 2]
    assert (await verify(database)).signed == 2


async def test_the_chains_of_deleted_tenants_are_listed(database: Database, tamper: Tamper) -> None:
    """Verification goes through every chain that there ever was; those that were closed lately are still signed."""
    states = {TENANT: "'active', NULL", OTHER: "'deleted', '2026-03-01 12:00+00'"}
    insert = "INSERT INTO tenants (id, name, state, deleted_at) VALUES ('{0}', '{0}', {1})"
    await tamper(*(insert.format(tenant, state) for tenant, state in states.items()))
    assert [tenant async for tenant in list_chains(database)] == [PLATFORM, *sorted((TENANT, OTHER))]
    assert await list_closed(database, datetime(2026, 3, 1, 12, tzinfo=UTC)) == [OTHER]
    assert await list_closed(database, datetime(2026, 3, 1, 13, tzinfo=UTC)) == []


async def test_a_head_that_was_told_is_looked_for(database: Database) -> None:
    """Whoever was given a head, as in a receipt, learns whether the log still has it."""
    await record(database, act(), act())
    async with database.transaction(tenant=TENANT) as connection:
        first, second = await read_audit(connection, TENANT)
        assert await holds(connection, TENANT, Head(1, first.hash))
        assert not await holds(connection, TENANT, Head(1, second.hash))
        assert not await holds(connection, TENANT, Head(3, second.hash))
