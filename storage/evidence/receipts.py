"""Receipts: what a deletion did, signed, so that it can be shown to whoever asks and checked without the service.

A receipt names nobody and nothing. An id stands in it as a salt and SHA-256 over salt and id: who knows the id can
show that the receipt is about it, and nobody else can find it out, since an id has 122 random bits.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import UUID

from storage.errors import InvalidEvidence
from storage.evidence import jws
from storage.evidence.audit import Head
from storage.evidence.deletions import Deletion
from storage.evidence.signing import Signer

KIND = "timbrelay-deletion-receipt"
BACKUPS = (
    "Backups of the database hold what was deleted as ciphertext only. The keys that open it are in no such backup, "
    "and were destroyed in the service."
)
"""What a receipt says on backups; docs/privacy.md, 'Backups', says how they are kept."""

STORES_LIMIT = 64
KEYS_LIMIT = 64

_FORMAT = 1
_SALT_BYTES = 16
_WORD = re.compile(r"[!-~]{1,64}")
_NAME = re.compile(r"[a-z][a-z0-9 _.-]{0,63}")
_SALT = re.compile(r"[0-9a-f]{32}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_SENTENCES = re.compile(r"[ -~]{1,1000}")

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class SaltedId:
    """An id that only who knows it can recognise."""

    salt: str
    """32 hexadecimal digits."""
    digest: str
    """SHA-256 over the salt's 16 bytes and the id as 36 lower-case characters, in hexadecimal."""

    @classmethod
    def of(cls, known: UUID) -> SaltedId:
        """With a fresh salt."""
        salt = secrets.token_bytes(_SALT_BYTES)
        return cls(salt.hex(), _digest(salt, known))

    def matches(self, known: UUID) -> bool:
        """Whether this is that id."""
        return hmac.compare_digest(self.digest, _digest(bytes.fromhex(self.salt), known))


@dataclass(frozen=True, slots=True)
class StoreOutcome:
    """What was deleted from one store."""

    outcome: str
    """A word, such as `done`."""
    count: int
    """How many things were removed."""
    at: datetime


@dataclass(frozen=True, slots=True)
class Receipt:
    """Everything that a receipt says; times to the microsecond, with their zone."""

    deletion_id: UUID
    object_kind: str
    object: SaltedId
    tenant: SaltedId
    reason: str
    requested_at: datetime
    completed_at: datetime
    stores: Mapping[str, StoreOutcome]
    destroyed_keys: tuple[SaltedId, ...]
    """The owners' ids of the data keys that were destroyed."""
    release: str
    """The version of the service."""
    audit_head: Head
    """Where the tenant's audit log stood: a log that lacks this entry has been cut off or rewritten since."""
    backups: str = BACKUPS


def build_receipt(
    deletion: Deletion,
    tenant: UUID,
    completed_at: datetime,
    *,
    destroyed_keys: Sequence[UUID],
    release: str,
    head: Head,
) -> Receipt:
    """The receipt for a deletion that is done in every store; `destroyed_keys` are the owners of data keys."""
    return Receipt(
        deletion_id=deletion.id,
        object_kind=deletion.object_kind,
        object=SaltedId.of(deletion.object_id),
        tenant=SaltedId.of(tenant),
        reason=deletion.reason,
        requested_at=deletion.requested_at,
        completed_at=completed_at,
        stores={name: StoreOutcome(store.outcome, store.count, store.at) for name, store in deletion.stores.items()},
        destroyed_keys=tuple(map(SaltedId.of, destroyed_keys)),
        release=release,
        audit_head=head,
    )


_FIELDS = frozenset({"format", *(known.name for known in fields(Receipt))})


def sign_receipt(signer: Signer, receipt: Receipt) -> str:
    """The receipt as a compact JWS.

    Raises ValueError for a receipt that holds what no receipt may: it is checked as a reader checks it.
    """
    payload = _write(receipt)
    try:
        _read(payload)
    except InvalidEvidence as error:
        raise ValueError(f"this deletion cannot be put into a receipt: {error}") from error
    return signer.sign(KIND, payload)


def verify_receipt(text: str, public_keys: jws.PublicKeys) -> Receipt:
    """What a receipt says, if one of these keys signed it.

    Raises InvalidEvidence that tells what is wrong: its form, algorithm, type, key, signature, or a field.
    """
    return _read(jws.verify(text.strip(), KIND, public_keys))


def _digest(salt: bytes, known: UUID) -> str:
    return hashlib.sha256(salt + str(known).encode()).hexdigest()


def _write(receipt: Receipt) -> dict[str, object]:
    return {
        "format": _FORMAT,
        "deletion_id": str(receipt.deletion_id),
        "object_kind": str(receipt.object_kind),
        "object": _write_id(receipt.object),
        "tenant": _write_id(receipt.tenant),
        "reason": str(receipt.reason),
        "requested_at": _write_time(receipt.requested_at),
        "completed_at": _write_time(receipt.completed_at),
        "stores": {
            name: {"outcome": str(store.outcome), "count": store.count, "at": _write_time(store.at)}
            for name, store in receipt.stores.items()
        },
        "destroyed_keys": [_write_id(key) for key in receipt.destroyed_keys],
        "release": receipt.release,
        "audit_head": {"sequence": receipt.audit_head.sequence, "hash": receipt.audit_head.hash.hex()},
        "backups": receipt.backups,
    }


def _write_id(known: SaltedId) -> dict[str, object]:
    return {"salt": known.salt, "sha256": known.digest}


def _write_time(at: datetime) -> str:
    """RFC 3339, in UTC, to the microsecond."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _read(payload: Mapping[str, Any]) -> Receipt:
    _check_names("receipt", payload, _FIELDS)
    if payload["format"] != _FORMAT or isinstance(payload["format"], bool):
        raise InvalidEvidence(f"its format is not {_FORMAT}; a newer release may know it")
    return Receipt(
        deletion_id=_take(payload, "deletion_id", _read_uuid),
        object_kind=_take(payload, "object_kind", _match(_NAME)),
        object=_take(payload, "object", _read_id),
        tenant=_take(payload, "tenant", _read_id),
        reason=_take(payload, "reason", _match(_NAME)),
        requested_at=_take(payload, "requested_at", _read_time),
        completed_at=_take(payload, "completed_at", _read_time),
        stores=_take(payload, "stores", _read_stores),
        destroyed_keys=_take(payload, "destroyed_keys", _read_ids),
        release=_take(payload, "release", _match(_WORD)),
        audit_head=_take(payload, "audit_head", _read_head),
        backups=_take(payload, "backups", _match(_SENTENCES)),
    )


def _take(record: Mapping[str, Any], name: str, read: Callable[[Any], Part]) -> Part:
    try:
        return read(record[name])
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise InvalidEvidence(f"its field {name} is not what it has to be") from error


def _check_names(what: str, record: Any, names: frozenset[str]) -> None:
    if not isinstance(record, dict) or set(record) != names:
        raise InvalidEvidence(f"its {what} has not exactly the fields {', '.join(sorted(names))}")


def _match(pattern: re.Pattern[str]) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not pattern.fullmatch(value):
            raise ValueError
        return str(value)

    return read


def _read_uuid(value: Any) -> UUID:
    found = UUID(value)
    if str(found) != value:
        raise ValueError
    return found


def _read_time(value: Any) -> datetime:
    found = datetime.fromisoformat(value)
    if _write_time(found) != value:
        raise ValueError
    return found


def _read_count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError
    return value


def _read_id(value: Any) -> SaltedId:
    _check_names("salted id", value, frozenset({"salt", "sha256"}))
    return SaltedId(_take(value, "salt", _match(_SALT)), _take(value, "sha256", _match(_DIGEST)))


def _read_ids(value: Any) -> tuple[SaltedId, ...]:
    if not isinstance(value, list) or len(value) > KEYS_LIMIT:
        raise ValueError
    return tuple(map(_read_id, value))


def _read_head(value: Any) -> Head:
    _check_names("audit head", value, frozenset({"sequence", "hash"}))
    return Head(_take(value, "sequence", _read_count), bytes.fromhex(_take(value, "hash", _match(_DIGEST))))


def _read_stores(value: Any) -> dict[str, StoreOutcome]:
    if len(value) > STORES_LIMIT or not all(_NAME.fullmatch(name) for name in value):
        raise ValueError
    return {name: _read_store(store) for name, store in value.items()}


def _read_store(value: Any) -> StoreOutcome:
    _check_names("store", value, frozenset({"outcome", "count", "at"}))
    outcome = _take(value, "outcome", _match(_NAME))
    return StoreOutcome(outcome, _take(value, "count", _read_count), _take(value, "at", _read_time))
