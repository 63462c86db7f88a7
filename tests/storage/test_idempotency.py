"""storage.tenancy.idempotency, over a real Postgres."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial
from uuid import UUID

import pytest
from sqlalchemy import text

from storage.database import Database
from storage.errors import IdempotencyBusy, IdempotencyConflict, InvalidValue
from storage.tenancy.idempotency import Begun, Finished, abandon, begin, finish, sweep
from storage.voices.voices import begin_deletion, create_voice, finish_deletion
from tests.conftest import MakeTenant
from tests.storage.conftest import Meet, Store

REQUEST = hashlib.sha256(b"POST /v1/voices a recording").digest()
OTHER = hashlib.sha256(b"POST /v1/voices another").digest()


async def _begin(store: Store, key: str = "key", fingerprint: bytes = REQUEST) -> Begun | Finished:
    async with store.open() as connection:
        return await begin(connection, store.keyring, store.tenant, key, fingerprint)


async def _begun(store: Store, key: str = "key", fingerprint: bytes = REQUEST) -> UUID:
    found = await _begin(store, key, fingerprint)
    assert isinstance(found, Begun)
    return found.object_id


async def _age(owner: Database, seconds: int) -> None:
    async with owner.transaction() as connection:
        await connection.execute(
            text(
                "UPDATE idempotency_keys SET started_at = started_at - make_interval(secs => :s),"
                " expires_at = expires_at - make_interval(secs => :s)"
            ),
            {"s": seconds},
        )


async def test_a_request_that_was_answered_is_answered_the_same_again(store: Store) -> None:
    """Without being done again, however often it comes."""
    await _begun(store)
    async with store.open() as connection:
        await finish(connection, store.tenant, "key", 202, {"id": "1", "name": "ä"})
    for _ in range(2):
        assert await _begin(store) == Finished(202, {"id": "1", "name": "ä"})
    async with store.open() as connection:
        await finish(connection, store.tenant, "key", 500, {})
    assert await _begin(store) == Finished(202, {"id": "1", "name": "ä"})


async def test_another_request_under_a_known_key_is_refused(store: Store, owner: Database) -> None:
    """While the first is under way, when it was answered, and when it broke off."""
    await _begun(store)
    for age_s in (0, 120):
        await _age(owner, age_s)
        with pytest.raises(IdempotencyConflict):
            await _begin(store, fingerprint=OTHER)
    async with store.open() as connection:
        await finish(connection, store.tenant, "key", 201, {})
    with pytest.raises(IdempotencyConflict):
        await _begin(store, fingerprint=OTHER)
    await _begun(store, "another-key", OTHER)


async def test_a_request_that_is_under_way_is_busy_and_then_taken_over_with_its_id(
    store: Store, owner: Database
) -> None:
    """What the first try may have made has the id that the second is told, so that it is made once."""
    made = await _begun(store)
    with pytest.raises(IdempotencyBusy):
        await _begin(store)
    await _age(owner, 61)
    assert await _begun(store) == made
    with pytest.raises(IdempotencyBusy):
        await _begin(store)


async def test_a_request_that_did_nothing_is_forgotten_at_once(store: Store) -> None:
    """It may come again, even with another body; what was answered is not forgotten so."""
    first = await _begun(store)
    async with store.open() as connection:
        await abandon(connection, store.tenant, "key")
    assert await _begun(store, fingerprint=OTHER) != first
    async with store.open() as connection:
        await finish(connection, store.tenant, "key", 201, {})
        await abandon(connection, store.tenant, "key")
    assert await _begin(store, fingerprint=OTHER) == Finished(201, {})


async def test_of_two_at_once_one_does_the_request(store: Store, meet: Meet) -> None:
    """The second waits for the first claim, and is told that it is busy."""
    await _begun(store, "makes-the-audit-key")
    step = partial(begin, keyring=store.keyring, tenant=store.tenant, key="key", fingerprint=REQUEST)
    first, second = await meet(store, step, step)
    assert isinstance(first, Begun)
    assert isinstance(second, IdempotencyBusy)


async def test_a_key_is_remembered_for_a_day(store: Store, owner: Database) -> None:
    """After that another request may have it, with another id; the sweep takes what is over, a part at a time."""
    made = [await _begun(store, f"key-{number}") for number in range(3)]
    async with store.open() as connection:
        await finish(connection, store.tenant, "key-0", 201, {"id": "1"})
    await _age(owner, 24 * 3600 - 60)
    assert await _begin(store, "key-0") == Finished(201, {"id": "1"})
    async with store.open() as connection:
        assert await sweep(connection, store.tenant) == 0
    await _age(owner, 120)
    assert await _begun(store, "key-0", OTHER) != made[0]
    async with store.open() as connection:
        assert await sweep(connection, store.tenant, limit=1) == 1
        assert await sweep(connection, store.tenant) == 1
        assert await sweep(connection, store.tenant) == 0
    with pytest.raises(IdempotencyBusy):
        await _begin(store, "key-0", OTHER)


async def test_each_tenant_has_its_own_keys_and_its_own_hashes(
    store: Store, owner: Database, make_tenant: MakeTenant
) -> None:
    """The same key and request of two tenants are two; what is kept is no hash that others could compute."""
    other = replace(store, tenant=(await make_tenant("other")).id)
    assert await _begun(store) != await _begun(other)
    async with owner.transaction() as connection:
        kept = set((await connection.execute(text("SELECT fingerprint FROM idempotency_keys"))).scalars())
    assert len(kept) == 2
    assert not kept & {REQUEST, hashlib.sha256(REQUEST).digest()}


@pytest.mark.parametrize("key", ["", "a b", "ä", "x" * 256, "a\0"])
async def test_what_can_be_no_key_is_refused(store: Store, key: str) -> None:
    """1 to 255 printable ASCII characters."""
    with pytest.raises(InvalidValue, match="idempotency_key"):
        await _begin(store, key)
    await _begun(store, "x" * 255)


async def test_an_answer_that_names_a_voice_goes_with_the_voice(store: Store) -> None:
    """That the request was answered is kept, or sending it again would make the voice anew."""
    made = await _begun(store)
    consent = await store.add_consent()
    async with store.open() as connection:
        await create_voice(
            connection, store.keyring, store.tenant, name="A", consent=consent, upload=b"u", voice_id=made
        )
        await finish(connection, store.tenant, "key", 202, {"name": "A"})
    async with store.open() as connection:
        await begin_deletion(connection, store.tenant, made)
        await finish_deletion(connection, store.tenant, made)
    assert await _begin(store) == Finished(202, None)
