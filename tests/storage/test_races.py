"""Everything at once: whatever meets whatever, nobody waits for ever, and what is left fits together."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from redis.asyncio import Redis
from sqlalchemy import exists, select
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.encryption.tenant_rotation import Cause, rotate_tenant
from storage.errors import IllegalTransition, InvalidValue
from storage.evidence.audit import Act, append
from storage.evidence.chain import verify_chain
from storage.evidence.deletions import ObjectKind, Reason, Request, request_deletion, request_deletions
from storage.evidence.erasure import Erasure
from storage.redis import connect
from storage.settings import Settings
from storage.states import ConsentState, DeletionState, VoiceState
from storage.tables import consents, data_keys, deletions, voice_aliases, voice_versions, voices
from storage.voices.aliases import set_alias
from storage.voices.consents import end_consent, grant_consent
from storage.voices.records import lock_consent
from storage.voices.versions import Enrolled, add_version, complete_enrolment, fail_enrolment, load_embedding
from storage.voices.voices import create_voice, disable_voice, enable_voice, rename_voice
from tests.conftest import STATEMENT, TERMS, MakeTenant

ACTORS, STEPS = 6, 40
"""How many act at the same time, and how often each does."""
EMBEDDING = bytes(1024)
_CONTENT = Enrolled(b"recording", EMBEDDING, 6.0, 90, {})


@dataclass(slots=True)
class World:
    """One tenant with few voices, so that everybody meets everybody."""

    database: Database
    keyring: Keyring
    erasure: Erasure
    tenant: UUID
    consents: list[UUID] = field(default_factory=list)
    voices: list[UUID] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)

    async def act(self, chance: random.Random) -> None:
        """One thing to one of the newest voices or consents; what its state does not allow is refused."""
        acts: list[Callable[[random.Random], Awaitable[None]]] = [
            *(self.grant, self.create, self.create, self.replace, self.complete, self.complete, self.fail, self.name),
            *(self.call, self.switch, self.delete, self.withdraw, self.rotate, self.sweep),
        ]
        act = chance.choice(acts if self.voices else acts[:2])
        try:
            await act(chance)
            self.done[act.__name__] += 1
        except (IllegalTransition, InvalidValue):
            self.done[f"{act.__name__}, refused"] += 1

    async def grant(self, _: random.Random) -> None:
        async with self.database.transaction(tenant=self.tenant) as connection:
            self.consents.append((await grant_consent(connection, self.keyring, self.tenant, TERMS, STATEMENT)).id)

    async def create(self, chance: random.Random) -> None:
        if not self.consents:
            return
        async with self.database.transaction(tenant=self.tenant) as connection:
            consent = chance.choice(self.consents[-4:])
            made = await create_voice(connection, self.keyring, self.tenant, name="x", consent=consent, upload=b"u")
            await self.note(connection, "voice.created", consent)
        if made is not None:
            self.voices.append(made.id)

    async def replace(self, chance: random.Random) -> None:
        async with self.database.transaction(tenant=self.tenant) as connection:
            voice, consent = chance.choice(self.voices[-4:]), chance.choice(self.consents[-4:])
            await add_version(connection, self.keyring, self.tenant, voice, consent=consent, upload=b"u")
            await self.note(connection, "voice.replaced", voice)

    async def complete(self, chance: random.Random) -> None:
        async with self.database.transaction(tenant=self.tenant) as connection:
            voice, version, consent = await self.find_waiting(connection, chance)
            if not await lock_consent(connection, self.tenant, consent):
                raise IllegalTransition("consent", "ended", "used")
            await complete_enrolment(connection, self.keyring, self.tenant, voice, version, _CONTENT)
            await self.note(connection, "voice.enrolled", voice)

    async def fail(self, chance: random.Random) -> None:
        async with self.database.transaction(tenant=self.tenant) as connection:
            voice, version, _ = await self.find_waiting(connection, chance)
            await fail_enrolment(connection, self.tenant, voice, version, code="silent", message="silent")
            await self.note(connection, "voice.rejected", voice)

    async def name(self, chance: random.Random) -> None:
        async with self.database.transaction(tenant=self.tenant) as connection:
            await rename_voice(connection, self.tenant, chance.choice(self.voices[-4:]), "y", revision=None)

    async def call(self, chance: random.Random) -> None:
        async with self.database.transaction(tenant=self.tenant) as connection:
            await set_alias(connection, self.tenant, chance.choice("abc"), chance.choice(self.voices[-4:]))

    async def switch(self, chance: random.Random) -> None:
        async with self.database.transaction(tenant=self.tenant) as connection:
            switch = chance.choice([disable_voice, enable_voice])
            await switch(connection, self.tenant, chance.choice(self.voices[-4:]))

    async def delete(self, chance: random.Random) -> None:
        voice = chance.choice(self.voices[-4:])
        request = Request(ObjectKind.VOICE, voice, Reason.REQUESTED, "key:1", "cli")
        async with self.database.transaction(tenant=self.tenant) as connection:
            deletion = await request_deletion(connection, self.tenant, request)
        if deletion is not None:
            await self.erasure.run(self.tenant, deletion.id)

    async def withdraw(self, chance: random.Random) -> None:
        consent = chance.choice(self.consents[-4:])
        async with self.database.transaction(tenant=self.tenant) as connection:
            hanging = (await end_consent(connection, self.tenant, consent, ConsentState.WITHDRAWN)).voices
            things = [*((ObjectKind.VOICE, voice) for voice in hanging), (ObjectKind.CONSENT, consent)]
            requests = [Request(kind, thing, Reason.WITHDRAWN, "key:1", "cli") for kind, thing in things]
            begun = await request_deletions(connection, self.tenant, requests)
        for deletion in begun:
            if deletion is not None:
                await self.erasure.run(self.tenant, deletion.id)

    async def rotate(self, _: random.Random) -> None:
        await rotate_tenant(self.database, self.keyring, self.tenant, Cause("operator:cli", "cli"))

    async def sweep(self, _: random.Random) -> None:
        """As upkeep does: every deletion that is not done, by whoever comes by."""
        async with self.database.transaction(tenant=self.tenant) as connection:
            query = select(deletions.c.id).where(deletions.c.state != DeletionState.DONE).limit(3)
            for deletion in (await connection.execute(query)).scalars().all():
                await self.erasure.run(self.tenant, deletion)

    async def find_waiting(self, connection: AsyncConnection, chance: random.Random) -> tuple[UUID, int, UUID]:
        table = voice_versions.c
        query = select(table.voice_id, table.version, table.consent_id).where(table.state == "pending")
        rows = (await connection.execute(query.order_by(table.voice_id))).all()
        if not rows:
            raise IllegalTransition("version", "nothing", "ended")
        found = chance.choice(rows)
        return found.voice_id, found.version, found.consent_id

    async def note(self, connection: AsyncConnection, action: str, thing: UUID) -> None:
        await append(connection, self.tenant, Act("key:1", action, "voice", str(thing), "cli"))


@pytest.fixture
async def redis(settings: Settings) -> AsyncIterator[Redis]:
    opened = connect(settings.redis_url)
    yield opened
    await opened.aclose()


@pytest.mark.parametrize("seed", range(2))
async def test_whatever_meets_whatever_it_ends_and_fits_together(
    seed: int, settings: Settings, keyring: Keyring, redis: Redis, make_tenant: MakeTenant
) -> None:
    """No deadlock, no fault, no fork of the log; what is ready decrypts, and of what is deleted nothing is left."""
    database = Database.for_service(settings, pool_size=3 * ACTORS)
    tenant = (await make_tenant("acme")).id
    world = World(database, keyring, Erasure(database, redis, keyring), tenant)

    async def live(actor: int) -> None:
        chance = random.Random(1000 * seed + actor)
        for _ in range(STEPS):
            await world.act(chance)

    try:
        await asyncio.gather(*map(live, range(ACTORS)))
        await _settle(world)
        await _check(world)
    finally:
        await database.close()
    assert {"create", "replace", "complete", "delete", "withdraw", "rotate"} <= set(world.done), world.done


async def _settle(world: World) -> None:
    """Every deletion to its end."""
    async with world.database.transaction(tenant=world.tenant) as connection:
        query = select(deletions.c.id).where(deletions.c.state != DeletionState.DONE)
        left = (await connection.execute(query)).scalars().all()
    for _ in range(3):
        states = [(await world.erasure.run(world.tenant, deletion)).state for deletion in left]
    assert set(states if left else []) <= {DeletionState.DONE}


async def _check(world: World) -> None:
    async with world.database.transaction(tenant=world.tenant) as connection:
        assert (await verify_chain(connection, world.tenant)).sound
        ready = select(voices).join(consents, consents.c.id == voices.c.consent_id)
        for voice in (await connection.execute(ready.where(voices.c.state == VoiceState.READY))).all():
            found = await load_embedding(connection, world.keyring, world.tenant, voice.id, voice.version)
            assert found == EMBEDDING, voice
        gone = select(voices.c.id).where(voices.c.state == VoiceState.DELETED)
        for table, column in ((voice_versions, "voice_id"), (voice_aliases, "voice_id"), (data_keys, "owner_id")):
            query = select(exists().where(table.c[column].in_(gone)))
            assert not (await connection.execute(query)).scalar(), f"{table} has something of a deleted voice"
        ended = select(consents.c.id).where(consents.c.state != ConsentState.ACTIVE)
        hanging = select(exists().where(voices.c.consent_id.in_(ended), voices.c.state != VoiceState.DELETED))
        assert not (await connection.execute(hanging)).scalar()
