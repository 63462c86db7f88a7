"""Consents: who allowed what, sealed because a consent names a person."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from uuid import UUID, uuid4

from sqlalchemy import insert, select

from storage.database import Database
from storage.encryption.data_keys import load_data_key, make_data_key
from storage.encryption.envelope import Kind, Label, seal, unseal
from storage.encryption.keyring import RootKey
from storage.tables import consents


@dataclass(frozen=True, slots=True)
class Consent:
    """A person's permission to clone their voice."""

    subject: str
    """Who consented."""
    statement: str
    """What they consented to, in the words they were shown."""


async def grant_consent(database: Database, root: RootKey, tenant: UUID, consent: Consent) -> tuple[UUID, datetime]:
    """Keep a consent; returns its id and the time it was granted."""
    consent_id = uuid4()
    async with database.transaction(tenant=tenant) as connection:
        data_key = await make_data_key(connection, root, tenant, consent_id)
        sealed = seal(data_key, json.dumps(asdict(consent)).encode(), Label(tenant, consent_id, Kind.CONSENT))
        statement = (
            insert(consents).values(id=consent_id, tenant_id=tenant, sealed=sealed).returning(consents.c.granted_at)
        )
        return consent_id, (await connection.execute(statement)).scalar_one()


async def load_consent(database: Database, root: RootKey, tenant: UUID, consent_id: UUID) -> Consent | None:
    """The consent, or None when the tenant has none with this id; raises DecryptionError."""
    async with database.transaction(tenant=tenant) as connection:
        data_key = await load_data_key(connection, root, tenant, consent_id)
        query = select(consents.c.sealed).where(consents.c.id == consent_id)
        sealed: bytes | None = (await connection.execute(query)).scalar()
    if data_key is None or sealed is None:
        return None
    return Consent(**json.loads(unseal(data_key, sealed, Label(tenant, consent_id, Kind.CONSENT))))
