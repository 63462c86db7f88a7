"""storage.evidence.jws, signing and receipts: what proves a deletion, and everything that does not."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import text

from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.errors import InvalidEvidence, RootKeyError
from storage.evidence import jws
from storage.evidence.audit import Head
from storage.evidence.deletions import Deletion, ObjectKind, Outcome, Reason, StoreReport
from storage.evidence.receipts import (
    KIND,
    Receipt,
    SaltedId,
    build_receipt,
    sign_receipt,
    verify_receipt,
)
from storage.evidence.signing import Signer, load_public_keys, load_signer, rotate_signer
from storage.settings import Settings
from storage.states import DeletionState

VOICE, TENANT, KEY = uuid4(), uuid4(), uuid4()
NOON = datetime(2026, 3, 1, 12, 0, 0, 120, tzinfo=UTC)
HEAD = Head(17, hashlib.sha256(b"head").digest())
ACTOR = f"key:{uuid4()}"


@pytest.fixture
def signer() -> Signer:
    return Signer(Ed25519PrivateKey.generate())


@pytest.fixture
def receipt() -> Receipt:
    stores = {
        "keys": StoreReport(Outcome.DONE, 1, NOON),
        "workers": StoreReport(Outcome.DONE, 3, NOON + timedelta(seconds=1), "worker-3 was gone"),
    }
    deletion = Deletion(
        id=uuid4(),
        tenant_id=TENANT,
        object_kind=ObjectKind.VOICE,
        object_id=VOICE,
        state=DeletionState.RUNNING,
        reason=Reason.WITHDRAWN,
        requested_by=ACTOR,
        requested_at=NOON,
        completed_at=None,
        stores=stores,
        receipt=None,
        attempts=1,
        next_attempt_at=NOON,
    )
    return build_receipt(
        deletion, TENANT, NOON + timedelta(seconds=2), destroyed_keys=(KEY,), release="0.1.0", head=HEAD
    )


def keys_of(signer: Signer) -> jws.PublicKeys:
    return {signer.key_id: signer.public_key}


def encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def forge(header: Mapping[str, object], payload: bytes, signature: bytes = b"") -> str:
    return ".".join(map(encode, (json.dumps(header).encode(), payload, signature)))


def test_a_receipt_says_what_was_signed(signer: Signer, receipt: Receipt) -> None:
    """What a reader gets from a receipt is what went in, to the microsecond."""
    read = verify_receipt(sign_receipt(signer, receipt) + "\n", keys_of(signer))
    assert read == receipt
    assert (read.reason, read.object_kind, read.audit_head) == ("consent_withdrawn", "voice", HEAD)
    assert {name: store.count for name, store in read.stores.items()} == {"keys": 1, "workers": 3}


def test_who_knows_the_id_recognises_it(receipt: Receipt) -> None:
    """An id stands in a receipt as SHA-256 over a salt of its own and the id, for voice, tenant and key."""
    assert receipt.object.matches(VOICE)
    assert receipt.tenant.matches(TENANT)
    assert receipt.destroyed_keys[0].matches(KEY)
    assert not receipt.object.matches(TENANT)
    assert SaltedId.of(VOICE) != SaltedId.of(VOICE)
    salted = bytes.fromhex(receipt.object.salt) + str(VOICE).encode()
    assert hashlib.sha256(salted).hexdigest() == receipt.object.digest


def test_a_receipt_gives_nothing_away(signer: Signer, receipt: Receipt) -> None:
    """Neither the ids of voice, tenant and key nor who asked, nor a store's remark, is in the signed text."""
    signed = sign_receipt(signer, receipt)
    clear = b"".join(base64.urlsafe_b64decode(part + "==") for part in signed.split("."))
    for hidden in (VOICE, TENANT, KEY):
        for spelling in (str(hidden).encode(), hidden.hex.encode(), hidden.bytes):
            assert spelling not in clear
    assert ACTOR.encode() not in clear
    assert b"worker-3" not in clear


def leaves(record: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a JSON object, and of every object and list."""
    if path:
        yield path
    children = record.items() if isinstance(record, dict) else enumerate(record) if isinstance(record, list) else ()
    for name, value in children:
        yield from leaves(value, (*path, name))


def change(record: Any, path: tuple[Any, ...], change: str) -> Any:
    record = json.loads(json.dumps(record))
    parent = record
    for name in path[:-1]:
        parent = parent[name]
    value = parent[path[-1]]
    if change == "removed":
        del parent[path[-1]]
    elif change == "other":
        parent[path[-1]] = {"a": 1} if isinstance(value, list) else [value]
    else:
        parent[path[-1]] = value + 1 if isinstance(value, int) else value[:-1] if isinstance(value, str) else None
    return record


def test_every_changed_field_is_found(signer: Signer, receipt: Receipt) -> None:
    """Whatever is changed in a receipt, its signature is not good any more."""
    header, payload, signature = sign_receipt(signer, receipt).split(".")
    record = json.loads(base64.urlsafe_b64decode(payload + "=="))
    paths = list(leaves(record))
    assert len(paths) > 25
    for path in paths:
        for how in ("changed", "removed", "other"):
            forged = encode(json.dumps(change(record, path, how), sort_keys=True, separators=(",", ":")).encode())
            with pytest.raises(InvalidEvidence, match="signature is not that of the key"):
                verify_receipt(f"{header}.{forged}.{signature}", keys_of(signer))


def test_a_signed_text_that_is_no_receipt_is_refused(signer: Signer, receipt: Receipt) -> None:
    """Also under a good signature a receipt has exactly its fields, each in its one form."""
    payload = sign_receipt(signer, receipt).split(".")[1]
    record = json.loads(base64.urlsafe_b64decode(payload + "=="))
    for path in leaves(record):
        with pytest.raises(InvalidEvidence, match=r"field|fields|format|salted id|store|head"):
            verify_receipt(signer.sign(KIND, change(record, path, "other")), keys_of(signer))
    for name in record:
        with pytest.raises(InvalidEvidence, match="exactly the fields"):
            verify_receipt(signer.sign(KIND, change(record, (name,), "removed")), keys_of(signer))
    with pytest.raises(InvalidEvidence, match="exactly the fields"):
        verify_receipt(signer.sign(KIND, {**record, "name": "x"}), keys_of(signer))
    with pytest.raises(InvalidEvidence, match="completed_at"):
        verify_receipt(signer.sign(KIND, {**record, "completed_at": "2026-03-01"}), keys_of(signer))


def test_only_our_algorithm_is_taken(signer: Signer, receipt: Receipt) -> None:
    """No `none`, no HMAC with the public key for its secret, no other curve's name, whatever the header says."""
    header, payload, signature = sign_receipt(signer, receipt).split(".")
    told = json.loads(base64.urlsafe_b64decode(header + "=="))
    body = base64.urlsafe_b64decode(payload + "==")
    for algorithm in ("none", "None", "", "HS256", "ES256", "RS256", "eddsa", None, ["EdDSA"]):
        changed = {**told, "alg": algorithm}
        signed = f"{encode(json.dumps(changed).encode())}.{payload}".encode()
        mac = hmac.new(signer.public_key.public_bytes_raw(), signed, hashlib.sha256).digest()
        for forged in (b"", mac, base64.urlsafe_b64decode(signature + "==")):
            with pytest.raises(InvalidEvidence, match="algorithm"):
                verify_receipt(forge(changed, body, forged), keys_of(signer))


BAD_HEADERS: dict[str, Mapping[str, object]] = {
    "an extension that is critical": {"crit": ["exp"], "exp": 1},
    "a key in the header": {"jwk": {"kty": "OKP"}},
    "an address of keys": {"jku": "https://example.org/keys"},
    "unencoded payload": {"b64": False, "crit": ["b64"]},
}


@pytest.mark.parametrize("added", BAD_HEADERS.values(), ids=BAD_HEADERS.keys())
def test_unknown_parameters_are_refused(receipt: Receipt, added: Mapping[str, object]) -> None:
    """A header has its three parameters and no others, under a good signature too."""
    key = Ed25519PrivateKey.generate()
    signer = Signer(key)
    header = {"alg": "EdDSA", "kid": signer.key_id, "typ": KIND, **added}
    signed = f"{encode(json.dumps(header).encode())}.{sign_receipt(signer, receipt).split('.')[1]}"
    with pytest.raises(InvalidEvidence, match="parameters"):
        verify_receipt(f"{signed}.{encode(key.sign(signed.encode()))}", keys_of(signer))


def test_each_way_to_be_wrong_has_its_reason(signer: Signer, receipt: Receipt) -> None:
    """A text that is no receipt of ours is refused with what is wrong with it."""
    good = sign_receipt(signer, receipt)
    header, payload, signature = good.split(".")
    told = json.loads(base64.urlsafe_b64decode(header + "=="))
    twice = f'{{"alg":"EdDSA","alg":"EdDSA","kid":"{signer.key_id}","typ":"{KIND}"}}'.encode()
    wrong = {
        "": "parts",
        f"{good}.x": "parts",
        f"{header}.{payload}": "parts",
        "a" * 100_000: "longer",
        f"{header}=.{payload}.{signature}": "base64url",
        f"{header}.{payload}.{signature[:-1]}ü": "base64url",
        f"{header}.{payload}.": "signature is not",
        f"{encode(b'[]')}.{payload}.{signature}": "no JSON object",
        f"{encode(twice)}.{payload}.{signature}": "each name stands once",
        forge({**told, "kid": "x"}, b"{}"): "not among the 1 known",
        forge({**told, "kid": ["x"]}, b"{}"): "not among the 1 known",
        signer.sign("timbrelay-audit-head", {}): "of the type",
        Signer(Ed25519PrivateKey.generate()).sign(KIND, {}): "not among the 1 known",
    }
    for signed, reason in wrong.items():
        with pytest.raises(InvalidEvidence, match=reason):
            verify_receipt(signed, keys_of(signer))
    # The last character of 64 bytes in base64url has four bits to spare: only one spelling is taken.
    spare = signature[:-1] + {"A": "B", "Q": "R", "g": "h", "w": "x"}[signature[-1]]
    with pytest.raises(InvalidEvidence, match="base64url"):
        verify_receipt(f"{header}.{payload}.{spare}", keys_of(signer))


def test_what_is_no_receipt_is_not_signed(signer: Signer, receipt: Receipt) -> None:
    """A sentence instead of a word, or a number below zero, does not get a signature."""
    for changed in ({"reason": "Jane Doe asked"}, {"release": "a b"}, {"backups": "ü"}, {"object_kind": ""}):
        with pytest.raises(ValueError, match="cannot be put into a receipt"):
            sign_receipt(signer, dataclasses.replace(receipt, **changed))  # type: ignore[arg-type]


async def test_the_key_is_made_once_and_kept_wrapped(database: Database, keyring: Keyring, settings: Settings) -> None:
    """Of those who need the first signing key at once all get the same one; its private part lies there wrapped."""

    async def load() -> str:
        async with database.transaction() as connection:
            return (await load_signer(connection, keyring)).key_id

    names = await asyncio.gather(*(load() for _ in range(4)))
    assert len(set(names)) == 1
    async with database.transaction() as connection:
        signer = await load_signer(connection, keyring)
        rows = (await connection.execute(text("SELECT * FROM keyring.signing_keys"))).all()
    private = signer._key.private_bytes_raw()
    assert len(rows) == 1
    assert private not in rows[0].wrapped_key
    assert rows[0].root_key_id == keyring.provider.root_key_id
    assert private.hex() not in repr(signer)
    stranger = settings.model_copy(update={"root_key": type(settings.root_key)(base64.b64encode(bytes(32)).decode())})
    with pytest.raises(RootKeyError):
        async with database.transaction() as connection:
            await load_signer(connection, Keyring.from_settings(stranger))


async def test_what_a_retired_key_signed_stays_good(database: Database, keyring: Keyring, receipt: Receipt) -> None:
    """After a rotation another key signs, the old private part is gone, and both keys' receipts are good."""
    async with database.transaction() as connection:
        earlier = sign_receipt(await load_signer(connection, keyring), receipt)
        await rotate_signer(connection, keyring)
    async with database.transaction() as connection:
        later = sign_receipt(await load_signer(connection, keyring), receipt)
        keys = await load_public_keys(connection)
        kept = await connection.execute(
            text("SELECT wrapped_key FROM keyring.signing_keys WHERE retired_at IS NOT NULL")
        )
        assert kept.scalars().all() == [None]
    assert len(keys) == 2
    assert earlier.split(".")[0] != later.split(".")[0]
    assert verify_receipt(earlier, keys) == verify_receipt(later, keys) == receipt


def test_the_keys_are_given_to_others_as_a_key_set(signer: Signer, receipt: Receipt) -> None:
    """Anybody checks a receipt with the published JWK set and nothing else of ours."""
    other = Signer(Ed25519PrivateKey.generate())
    written = json.dumps(jws.write_key_set({**keys_of(other), **keys_of(signer)}))
    assert verify_receipt(sign_receipt(signer, receipt), jws.read_key_set(written)) == receipt
    # RFC 8037, appendix A.2 and A.3: the key and its thumbprint.
    known = {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}
    read = jws.read_key_set(json.dumps({"keys": [known, {"kty": "EC"}]}))
    assert list(read) == ["kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"]
    for broken in (
        "",
        "[]",
        '{"keys": 1}',
        '{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "AA"}]}',
        '{"keys": ["a"]}',
    ):
        with pytest.raises(InvalidEvidence, match="JWK set"):
            jws.read_key_set(broken)
