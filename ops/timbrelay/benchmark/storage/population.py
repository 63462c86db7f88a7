"""A database with many voices in it: a few enrolled as ever, the rest copies of those under ids of their own.

The copies cannot be decrypted, since a ciphertext is bound to its voice. They are there for the tables and their
indexes to be as large as they would be; what is fetched and decrypted are the voices that were enrolled.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import text

from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.tenancy.api_keys import Scope, create_key
from storage.tenancy.tenants import create_tenant
from storage.voices.aliases import set_alias
from storage.voices.consents import Statement, Terms, grant_consent
from storage.voices.versions import Enrolled, complete_enrolment
from storage.voices.voices import create_voice

_EMBEDDING_BYTES = 1024
_RECORDING_BYTES = 64
_COPY_VOICES = text("""
    WITH originals AS (
        SELECT *, row_number() OVER (ORDER BY id) AS place FROM voices WHERE tenant_id = :tenant
    ),
    copies AS (
        SELECT o.*, gen_random_uuid() AS copy, n, n * interval '1 second' AS age
        FROM generate_series(1, :count) n JOIN originals o ON o.place = 1 + n % :originals
    ),
    made AS (
        INSERT INTO voices (id, tenant_id, consent_id, name, state, version, latest_version, created_at, last_used_at)
        SELECT copy, tenant_id, consent_id, name || ' ' || n, state, version, latest_version, created_at - age,
            last_used_at - age
        FROM copies
    ),
    versions AS (
        INSERT INTO voice_versions
            (voice_id, version, tenant_id, state, stage, consent_id, recording, embedding, duration_s)
        SELECT c.copy, w.version, w.tenant_id, w.state, w.stage, w.consent_id, w.recording, w.embedding, w.duration_s
        FROM copies c JOIN voice_versions w ON w.voice_id = c.id
    ),
    keys AS (
        INSERT INTO keyring.data_keys (owner_id, tenant_id, tenant_key_id, wrapped_key)
        SELECT c.copy, k.tenant_id, k.tenant_key_id, k.wrapped_key
        FROM copies c JOIN keyring.data_keys k ON k.owner_id = c.id
    )
    INSERT INTO voice_aliases (tenant_id, alias, voice_id) SELECT tenant_id, 'copy-' || n, copy FROM copies
""")


@dataclass(frozen=True, slots=True)
class Shape:
    """How many of what there are."""

    voices: int = 100_000
    tenants: int = 1000
    """The first has half of all voices; the others, at least one, share the rest evenly."""
    enrolled: int = 500
    """Voices of the first tenant that are enrolled as ever; of the others it is one each."""
    keys: int = 10
    """API keys of each tenant."""

    def share(self, index: int) -> int:
        """How many voices the tenant of this number has."""
        half = self.voices // 2
        return half if index == 0 else max(1, half // (self.tenants - 1))


@dataclass(frozen=True, slots=True)
class Resident:
    """A tenant of the population."""

    id: UUID
    voices: tuple[UUID, ...]
    """Those that were enrolled, and can be decrypted."""
    aliases: tuple[str, ...]
    keys: tuple[str, ...]


async def populate(
    owner: Database, database: Database, keyring: Keyring, shape: Shape, report: Callable[[int], None]
) -> list[Resident]:
    """Make the tenants, the largest first; calls `report` with how many voices there are."""
    residents: list[Resident] = []
    made = 0
    for index in range(shape.tenants):
        enrolled = min(shape.enrolled, shape.share(index)) if index == 0 else 1
        residents.append(await _make_resident(database, keyring, index, enrolled, shape.keys))
        await _copy(database, residents[-1], shape.share(index) - enrolled)
        made += shape.share(index)
        report(made)
    async with owner.transaction() as connection:
        # The planner knows the tables as it would know them after a night's work of autovacuum.
        for table in (
            "voices",
            "voice_versions",
            "voice_aliases",
            "api_keys",
            "tenants",
            "consents",
            "keyring.data_keys",
        ):
            await connection.execute(text(f"ANALYZE {table}"))
    return residents


async def _make_resident(database: Database, keyring: Keyring, index: int, enrolled: int, keys_each: int) -> Resident:
    async with database.transaction(operator=True) as connection:
        tenant = (await create_tenant(connection, f"tenant {index}")).id
        keys = [
            (await create_key(connection, tenant, name="", scopes=[Scope.SPEAK], expires_at=None))[1]
            for _ in range(keys_each)
        ]
    voices, aliases = [], []
    for number in range(enrolled):
        alias = f"voice-{number}"
        voices.append(await _enrol(database, keyring, tenant, alias))
        aliases.append(alias)
    return Resident(tenant, tuple(voices), tuple(aliases), tuple(key.get_secret_value() for key in keys))


async def _enrol(database: Database, keyring: Keyring, tenant: UUID, alias: str) -> UUID:
    async with database.transaction(tenant=tenant) as connection:
        terms = Terms(statement_version="1", language="en", purpose="a benchmark", expires_at=None)
        consent = await grant_consent(connection, keyring, tenant, terms, Statement("Nobody", "I am not a person."))
        upload = secrets.token_bytes(_RECORDING_BYTES)
        voice = await create_voice(connection, keyring, tenant, name=alias, consent=consent.id, upload=upload)
        if voice is None:
            raise RuntimeError("the consent that was just granted is not in force")
        embedding = secrets.token_bytes(_EMBEDDING_BYTES)
        content = Enrolled(upload, embedding, duration_s=6.0, quality=None, quality_parts=None)
        await complete_enrolment(connection, keyring, tenant, voice.id, 1, content)
        await set_alias(connection, tenant, alias, voice.id)
    return voice.id


async def _copy(database: Database, resident: Resident, count: int) -> None:
    parameters = {"tenant": resident.id, "count": count, "originals": len(resident.voices)}
    async with database.transaction(tenant=resident.id) as connection:
        await connection.execute(text("SET LOCAL statement_timeout = '10min'"))
        await connection.execute(_COPY_VOICES, parameters)
