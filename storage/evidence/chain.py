"""Whether a log is still as it was written: each entry's hash, its place, and the signed heads on the way."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, Row, Text, case, cast, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.evidence.audit import BEGINNING, Head, hash_entry
from storage.tables import audit_log

BATCH = 1000

SignedHeads = Callable[[int], Awaitable[Mapping[int, bytes | None]]]
"""Given a sequence, the hashes of the next BATCH signed heads after it; None where the signature is not good."""


class Flaw(StrEnum):
    """What is wrong with a chain at a sequence; the value is for a reader."""

    MISSING = "the entry is missing"
    CHANGED = "the entry was changed: its hash is another"
    UNLINKED = "the entry does not follow the one before it"
    REWRITTEN = "the entry is not the one whose hash was signed: the chain was rewritten"
    TRUNCATED = "the entry and what followed it is missing, though a signed head tells of it"
    FORGED = "the signed head at this entry has no good signature of ours"


@dataclass(frozen=True, slots=True)
class Verdict:
    """How far a chain is sound, and where it first is not."""

    tenant: UUID
    head: Head
    """The last sound entry."""
    sequence: int = 0
    """The first that is not sound, 0 when all are."""
    flaw: Flaw | None = None
    signed: int = 0
    """The last sequence that was compared with a signed head; what came after it can be cut off unnoticed."""

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return self.flaw is None


async def holds(connection: AsyncConnection, tenant: UUID, head: Head) -> bool:
    """Whether the tenant's log has the entry with this hash at this place, as somebody was told that it had."""
    if head == BEGINNING:
        return True
    table = audit_log.c
    query = select(table.hash).where(table.tenant_id == tenant, table.sequence == head.sequence)
    return (await connection.execute(query)).scalar() == head.hash


async def no_heads(after: int) -> Mapping[int, bytes | None]:
    """For a log without signed heads."""
    return {}


async def verify_chain(
    connection: AsyncConnection,
    tenant: UUID,
    *,
    start: Head = BEGINNING,
    heads: SignedHeads = no_heads,
    report: Callable[[int], None] = lambda sequence: None,
) -> Verdict:
    """Go through the tenant's chain after `start`, a batch in memory at a time, to its end or first flaw.

    `report` is told the sequences that were reached.
    """
    verdict = Verdict(tenant, start)
    while True:
        # Before the entries: a head that is signed meanwhile must not look like one whose entry is gone.
        signed = await heads(verdict.head.sequence)
        rows = await _read_batch(connection, tenant, verdict.head.sequence)
        if not rows:
            flaw = Flaw.TRUNCATED if signed else None
            return replace(verdict, sequence=verdict.head.sequence + 1 if signed else 0, flaw=flaw)
        verdict = _follow(verdict, rows, signed)
        report(verdict.head.sequence)
        if not verdict.sound:
            return verdict


def _follow(verdict: Verdict, rows: Sequence[Row[Any]], heads: Mapping[int, bytes | None]) -> Verdict:
    head, signed = verdict.head, verdict.signed
    for row in rows:
        flaw = _find_flaw(verdict.tenant, head, row)
        if flaw is None and row.sequence in heads:
            flaw = _compare(heads[row.sequence], row.hash)
            signed = row.sequence
        if flaw is not None:
            return Verdict(verdict.tenant, head, head.sequence + 1, flaw, verdict.signed)
        head = Head(row.sequence, row.hash)
    return Verdict(verdict.tenant, head, signed=signed)


def _find_flaw(tenant: UUID, head: Head, row: Row[Any]) -> Flaw | None:
    if row.sequence != head.sequence + 1:
        return Flaw.MISSING
    try:
        act = (row.actor, row.action, row.object_kind, row.object_id, row.origin, json.loads(row.detail))
        expected = hash_entry(tenant, row.sequence, row.microseconds, act, row.previous_hash)
    except (ValueError, RecursionError):
        return Flaw.CHANGED
    if expected != row.hash:
        return Flaw.CHANGED
    return None if row.previous_hash == head.hash else Flaw.UNLINKED


def _compare(signed: bytes | None, found: bytes) -> Flaw | None:
    if signed is None:
        return Flaw.FORGED
    return None if signed == found else Flaw.REWRITTEN


async def _read_batch(connection: AsyncConnection, tenant: UUID, after: int) -> Sequence[Row[Any]]:
    """Times as numbers and detail as text, since what was tampered with need not be of Python's types any more."""
    table = audit_log.c
    microseconds = cast(func.extract("epoch", table.at) * 1_000_000, BigInteger)
    query = select(
        table.sequence,
        case((func.isfinite(table.at), microseconds)).label("microseconds"),
        table.actor,
        table.action,
        table.object_kind,
        table.object_id,
        table.origin,
        cast(table.detail, Text).label("detail"),
        table.previous_hash,
        table.hash,
    )
    query = query.where(table.tenant_id == tenant, table.sequence > after).order_by(table.sequence).limit(BATCH)
    return (await connection.execute(query)).all()
