"""Signed heads of the audit chains: they tell of a tail that was cut off, and of a chain that was written anew.

Whoever owns the database can rewrite a chain from any entry on, hashes and all, but does not have the key that signs.
A head is signed only when it follows, entry by entry, from the one signed before, so a rewritten log is never blessed.
Whoever removes the log's tail and its signed heads alike is found by a head kept elsewhere: each receipt holds one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.errors import InvalidEvidence
from storage.evidence import jws
from storage.evidence.audit import GENESIS, PLATFORM, Head
from storage.evidence.chain import BATCH, SignedHeads, Verdict, verify_chain
from storage.evidence.signing import Signer, load_public_keys, load_signer
from storage.states import TenantState
from storage.tables import audit_checkpoints, audit_log, tenants
from storage.tenancy.tenants import walk_tenants

KIND = "timbrelay-audit-head"
CLOSED_LIMIT = 100
_FORMAT = 1


async def write_checkpoint(connection: AsyncConnection, keyring: Keyring, tenant: UUID) -> Verdict:
    """Sign the tenant's head, if what was written since the last signed one, and that one itself, is sound.

    Raises what `load_signer` raises.
    """
    heads = find_heads(connection, tenant, await load_public_keys(connection))
    last, start = await _find_start(connection, tenant)
    verdict = await verify_chain(connection, tenant, start=start, heads=heads)
    if verdict.sound and verdict.head.sequence > last:
        await _keep(connection, await load_signer(connection, keyring), tenant, verdict.head)
    return verdict


def find_heads(connection: AsyncConnection, tenant: UUID, keys: jws.PublicKeys) -> SignedHeads:
    """The tenant's signed heads, for `verify_chain`."""
    table = audit_checkpoints.c

    async def after(sequence: int) -> Mapping[int, bytes | None]:
        query = select(table.sequence, table.signed).where(table.tenant_id == tenant, table.sequence > sequence)
        rows = await connection.execute(query.order_by(table.sequence).limit(BATCH))
        return {row.sequence: _read(row.signed, tenant, row.sequence, keys) for row in rows}

    return after


async def list_chains(database: Database) -> AsyncIterator[UUID]:
    """In whose name there are, or will be, chains: the platform, then every tenant there ever was."""
    yield PLATFORM
    async for tenant in walk_tenants(database, deleted=True):
        yield tenant


async def list_closed(database: Database, since: datetime) -> list[UUID]:
    """The newest hundred of the tenants that were deleted since then: their last entries are still to be signed."""
    columns = tenants.c
    query = select(columns.id).where(columns.state == TenantState.DELETED, columns.deleted_at >= since)
    async with database.transaction(operator=True) as connection:
        found = await connection.execute(query.order_by(columns.deleted_at.desc(), columns.id).limit(CLOSED_LIMIT))
        return list(found.scalars())


async def _find_start(connection: AsyncConnection, tenant: UUID) -> tuple[int, Head]:
    """The last signed sequence, and the place before it: from there the signed entry itself is verified too."""
    signed, entries = audit_checkpoints.c, audit_log.c
    last = (await connection.execute(select(func.max(signed.sequence)).where(signed.tenant_id == tenant))).scalar() or 0
    query = select(entries.previous_hash).where(entries.tenant_id == tenant, entries.sequence == last)
    previous = (await connection.execute(query)).scalar()
    return last, Head(max(last - 1, 0), GENESIS if previous is None else previous)


async def _keep(connection: AsyncConnection, signer: Signer, tenant: UUID, head: Head) -> None:
    payload = {"format": _FORMAT, "tenant": str(tenant), "sequence": head.sequence, "hash": head.hash.hex()}
    values = {"tenant_id": tenant, "sequence": head.sequence, "signed": signer.sign(KIND, payload)}
    # Of two that sign one head at once, one is enough.
    await connection.execute(insert(audit_checkpoints).values(values).on_conflict_do_nothing())


def _read(signed: str, tenant: UUID, sequence: int, keys: jws.PublicKeys) -> bytes | None:
    try:
        payload = jws.verify(signed, KIND, keys)
        told = (payload["format"], payload["tenant"], payload["sequence"])
        found = bytes.fromhex(payload["hash"])
    except (InvalidEvidence, KeyError, ValueError, TypeError):
        return None
    return found if told == (_FORMAT, str(tenant), sequence) else None
