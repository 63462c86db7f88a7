"""The audit log: who did what, when, to which object, from where; a hash chain a tenant, and one of the whole service.

An entry's hash is SHA-256 over its canonical form (RFC 8785), which holds the hash before it. An entry is written in
the transaction that it records: neither is ever there without the other. `storage.evidence.chain` verifies.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import TypeAlias
from uuid import UUID

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from sqlalchemy import func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.encryption.envelope import KEY_BYTES
from storage.encryption.keyring import Keyring
from storage.encryption.secrets import SecretBytes
from storage.evidence.canonical import canonical
from storage.tables import audit_log

PLATFORM = UUID(int=0)
"""In whose name stands what was done to the whole service."""

GENESIS = bytes(32)
"""The hash before the first entry."""

ACTS_LIMIT = 1000
READ_LIMIT = 1000
WORD_CHARACTERS = 128
LIST_ITEMS = 64
DETAIL_BYTES = 4096

_FORMAT = 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# A word, an id, an address; never a sentence, since nobody's text has to get in, not even by accident.
_WORD = re.compile(rf"[!-~]{{1,{WORD_CHARACTERS}}}")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_ACTION = re.compile(r"[a-z_]{1,40}\.[a-z_]{1,40}")

Scalar: TypeAlias = str | int | float | bool | None
Detail: TypeAlias = Mapping[str, Scalar | Sequence[Scalar]]


@dataclass(frozen=True, slots=True)
class Act:
    """Something that was done, to be put on record.

    Texts are words of at most 128 printable ASCII characters without spaces; `detail` holds such words, numbers and
    lists of up to 64 of them under short lower-case names, 4 KiB in all. Anything else raises ValueError: a sentence
    somebody had spoken, an embedding or a recording does not fit in.
    """

    actor: str
    action: str
    object_kind: str
    object_id: str
    origin: str
    detail: Detail = field(default_factory=dict)
    at: datetime | None = None
    """When, with its zone; the moment of writing when left out."""

    def __post_init__(self) -> None:
        for name in ("actor", "object_id", "origin"):
            _check_word(name, getattr(self, name))
        if not _ACTION.fullmatch(self.action) or not _NAME.fullmatch(self.object_kind):
            raise ValueError("an audit entry's action is like `voice.created`, and its object's kind like `voice`")
        if self.at is not None and self.at.tzinfo is None:
            raise ValueError("an audit entry's time has a zone")
        _check_detail(self.detail)


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a chain; sequences begin at 1 and have no gaps."""

    tenant: UUID
    sequence: int
    at: datetime
    actor: str
    action: str
    object_kind: str
    object_id: str
    origin: str
    detail: Detail
    previous_hash: bytes
    hash: bytes


@dataclass(frozen=True, slots=True)
class Head:
    """How far a chain has come: its last sequence and that entry's hash."""

    sequence: int
    hash: bytes


BEGINNING = Head(0, GENESIS)
"""Of a chain without an entry."""

_COLUMNS = {"tenant": "tenant_id"} | {known.name: known.name for known in fields(Entry)[1:]}


async def append_all(connection: AsyncConnection, tenant: UUID, acts: Sequence[Act]) -> None:
    """The same as `append` for any number of acts."""
    for start in range(0, len(acts), ACTS_LIMIT):
        await append(connection, tenant, *acts[start : start + ACTS_LIMIT])


async def append(connection: AsyncConnection, tenant: UUID, *acts: Act) -> None:
    """Put up to a thousand acts on the tenant's record, within the transaction that does them, and as its last step.

    From here to the transaction's end other writers of this tenant's log wait, so that the chain has no gap and no
    fork. Raises ValueError for too many acts.
    """
    if len(acts) > ACTS_LIMIT:
        raise ValueError(f"at most {ACTS_LIMIT} acts are put on record at once")
    if not acts:
        return
    now = await lock(connection, f"audit log {tenant}")
    head = await read_head(connection, tenant)
    rows = []
    for act in acts:
        entry = _follow(tenant, head, act, (act.at or now).astimezone(UTC))
        head = Head(entry.sequence, entry.hash)
        rows.append({column: getattr(entry, name) for name, column in _COLUMNS.items()})
    await connection.execute(insert(audit_log), rows)


async def read_head(connection: AsyncConnection, tenant: UUID) -> Head:
    """Where the tenant's chain ends as this transaction sees it."""
    query = select(audit_log.c.sequence, audit_log.c.hash).where(audit_log.c.tenant_id == tenant)
    row = (await connection.execute(query.order_by(audit_log.c.sequence.desc()).limit(1))).one_or_none()
    return BEGINNING if row is None else Head(row.sequence, row.hash)


async def read_audit(
    connection: AsyncConnection,
    tenant: UUID,
    *,
    object_id: str | None = None,
    action: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    after_sequence: int = 0,
    limit: int = 100,
) -> list[Entry]:
    """Up to `limit` (at most 1000) entries in order, after a sequence, of `since` <= time < `until`."""
    table = audit_log.c
    query = select(audit_log).where(table.tenant_id == tenant, table.sequence > after_sequence)
    if object_id is not None:
        query = query.where(table.object_id == object_id)
    if action is not None:
        query = query.where(table.action == action)
    if since is not None:
        query = query.where(table.at >= since)
    if until is not None:
        query = query.where(table.at < until)
    rows = await connection.execute(query.order_by(table.sequence).limit(max(1, min(limit, READ_LIMIT))))
    return [Entry(row.tenant_id, *row[1:]) for row in rows]


async def audit_key(connection: AsyncConnection, keyring: Keyring, tenant: UUID) -> SecretBytes:
    """The key under which the tenant's texts are hashed: HKDF-SHA256 (RFC 5869) of a data key that the tenant owns.

    It dies with the tenant's keys, and then nobody can try out texts against the hashes any more. Raises what the
    keyring raises.
    """
    data_key = await keyring.load_data_key(connection, tenant, tenant)
    if data_key is None:
        await lock(connection, f"audit key {tenant}")
        data_key = await keyring.load_or_make_data_key(connection, tenant, tenant)
    derived = HKDF(SHA256(), KEY_BYTES, salt=None, info=b"timbrelay audit text").derive(data_key.reveal())
    return SecretBytes(derived)


def hash_text(key: SecretBytes, text: str) -> str:
    """HMAC-SHA256 (RFC 2104) of a text's UTF-8 under `audit_key`, in hexadecimal: 64 characters."""
    return hmac.new(key.reveal(), text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


async def lock(connection: AsyncConnection, purpose: str) -> datetime:
    """Wait until no other transaction holds this purpose, hold it to the end of this one; returns the time then."""
    digest = hashlib.sha256(f"timbrelay {purpose}".encode()).digest()
    number = int.from_bytes(digest[:8], "big", signed=True)
    query = select(func.pg_advisory_xact_lock(number), func.clock_timestamp().label("now"))
    now: datetime = (await connection.execute(query)).one().now
    return now


def hash_entry(tenant: UUID, sequence: int, microseconds: int, act: Sequence[object], previous_hash: bytes) -> bytes:
    """SHA-256 over an entry: `act` is actor, action, object kind and id, origin and detail; time is since 1970 in UTC.

    Raises ValueError for a value that no entry of ours can have.
    """
    actor, action, object_kind, object_id, origin, detail = act
    form = {
        "format": _FORMAT,
        "tenant": str(tenant),
        "sequence": sequence,
        "at": microseconds,
        "actor": actor,
        "action": action,
        "object_kind": object_kind,
        "object_id": object_id,
        "origin": origin,
        "detail": detail,
        "previous": previous_hash.hex(),
    }
    return hashlib.sha256(canonical(form)).digest()


def _follow(tenant: UUID, head: Head, act: Act, at: datetime) -> Entry:
    detail = {name: _plain(value) for name, value in act.detail.items()}
    told = (act.actor, act.action, act.object_kind, act.object_id, act.origin)
    sequence = head.sequence + 1
    microseconds = (at - _EPOCH) // timedelta(microseconds=1)
    digest = hash_entry(tenant, sequence, microseconds, (*told, detail), head.hash)
    return Entry(tenant, sequence, at, *told, detail, head.hash, digest)


def _check_word(name: str, value: str) -> None:
    if not _WORD.fullmatch(value):
        raise ValueError(f"an audit entry's {name} is 1 to {WORD_CHARACTERS} printable characters without spaces")


def _check_detail(detail: Detail) -> None:
    for name, value in detail.items():
        if not _NAME.fullmatch(name):
            raise ValueError("a name in an audit entry's detail is short and of a-z, 0-9 and _")
        items = value if isinstance(value, list | tuple) else [value]
        if len(items) > LIST_ITEMS or not all(isinstance(item, str | int | float | None) for item in items):
            raise ValueError(f"{name} in an audit entry's detail is no word, number or list of {LIST_ITEMS} at most")
        for item in items:
            if isinstance(item, str) and item:
                _check_word(name, item)
    if len(canonical({name: _plain(value) for name, value in detail.items()})) > DETAIL_BYTES:
        raise ValueError(f"an audit entry's detail is larger than {DETAIL_BYTES} bytes")


def _plain(value: Scalar | Sequence[Scalar]) -> Scalar | list[Scalar]:
    return _round(value) if isinstance(value, str | int | float | None) else [_round(item) for item in value]


def _round(value: Scalar) -> Scalar:
    """As it comes back from the database: text without its enumeration, at most six decimals, whole numbers whole."""
    if isinstance(value, str):
        return str(value)
    if not isinstance(value, float):
        return value
    rounded = round(value, 6)
    return int(rounded) if rounded.is_integer() else rounded
