"""Signed texts: JSON Web Signatures (RFC 7515) in their compact form, by Ed25519 and nothing else (RFC 8037).

The reader is strict: three parts, a header of exactly `alg`, `kid` and `typ`, the one algorithm, unpadded base64url and
JSON in which no name stands twice. So there is no algorithm to be talked into, and no extension to be overlooked.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from storage.errors import InvalidEvidence
from storage.evidence.canonical import canonical

ALGORITHM = "EdDSA"
TEXT_CHARACTERS = 65_536
KEYS_LIMIT = 1000
_KEY_BYTES = 32

PublicKeys = Mapping[str, Ed25519PublicKey]
"""By key id, which is the key's thumbprint (RFC 7638)."""


def sign(key: Ed25519PrivateKey, kind: str, payload: Mapping[str, object]) -> str:
    """The payload as a compact JWS whose `typ` is `kind`; raises ValueError for what has no canonical form."""
    header = {"alg": ALGORITHM, "kid": name_key(key.public_key()), "typ": kind}
    signed = f"{_encode(canonical(header))}.{_encode(canonical(payload))}"
    return f"{signed}.{_encode(key.sign(signed.encode()))}"


def verify(text: str, kind: str, keys: PublicKeys) -> dict[str, Any]:
    """The payload of a compact JWS that one of the keys signed as a `kind`.

    Raises InvalidEvidence that tells what is wrong with it.
    """
    if len(text) > TEXT_CHARACTERS:
        raise InvalidEvidence(f"it is longer than {TEXT_CHARACTERS} characters")
    parts = text.split(".")
    if len(parts) != 3:
        raise InvalidEvidence(f"it has {len(parts)} parts between dots where a signed text has 3")
    header = _read_object("header", parts[0])
    key = _find_key(header, kind, keys)
    try:
        key.verify(_decode("signature", parts[2]), f"{parts[0]}.{parts[1]}".encode())
    except InvalidSignature as error:
        raise InvalidEvidence(f"the signature is not that of the key {header['kid']}: it was changed") from error
    return _read_object("payload", parts[1])


def name_key(key: Ed25519PublicKey) -> str:
    """The key's thumbprint (RFC 7638, SHA-256), its `kid`."""
    members = {name: _to_jwk(key)[name] for name in ("crv", "kty", "x")}
    return _encode(hashlib.sha256(canonical(members)).digest())


def write_key_set(keys: PublicKeys) -> dict[str, Any]:
    """The keys as a JWK set (RFC 7517), as JSON."""
    return {"keys": [{**_to_jwk(key), "kid": name, "alg": ALGORITHM, "use": "sig"} for name, key in keys.items()]}


def read_key_set(text: str) -> dict[str, Ed25519PublicKey]:
    """The Ed25519 keys of a JWK set; keys of other kinds are passed over. Raises InvalidEvidence."""
    try:
        listed = json.loads(text, object_pairs_hook=_unique)["keys"]
        wanted = [key for key in listed if key.get("kty") == "OKP" and key.get("crv") == "Ed25519"][:KEYS_LIMIT]
        found = [_read_key(key["x"]) for key in wanted]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidEvidence("the key set is no JWK set (RFC 7517)") from error
    return {name_key(key): key for key in found}


def _find_key(header: Mapping[str, object], kind: str, keys: PublicKeys) -> Ed25519PublicKey:
    if header.get("alg") != ALGORITHM:
        raise InvalidEvidence(
            f"its header names the algorithm {_quote(header.get('alg'))}, and only {ALGORITHM} is taken"
        )
    if set(header) != {"alg", "kid", "typ"}:
        raise InvalidEvidence("its header has not exactly the parameters alg, kid and typ")
    if header["typ"] != kind:
        raise InvalidEvidence(f"it is of the type {_quote(header['typ'])}, not {kind!r}")
    name = header["kid"]
    if not isinstance(name, str) or name not in keys:
        raise InvalidEvidence(
            f"it is signed with the key {_quote(name)}, which is not among the {len(keys)} known ones"
        )
    return keys[name]


def _quote(value: object) -> str:
    return repr(value)[:60]


def _to_jwk(key: Ed25519PublicKey) -> dict[str, str]:
    return {"kty": "OKP", "crv": "Ed25519", "x": _encode(key.public_bytes_raw())}


def _read_key(encoded: str) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(_decode("key", encoded))


def _read_object(name: str, encoded: str) -> dict[str, Any]:
    try:
        found = json.loads(_decode(name, encoded), object_pairs_hook=_unique, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise InvalidEvidence(f"its {name} is no JSON in which each name stands once") from error
    if not isinstance(found, dict):
        raise InvalidEvidence(f"its {name} is no JSON object")
    return found


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON")


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _decode(name: str, encoded: str) -> bytes:
    """Of all the texts that a lenient reader decodes alike, one is taken: the one that we would write."""
    try:
        content = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidEvidence(f"its {name} is not base64url") from error
    if _encode(content) != encoded:
        raise InvalidEvidence(f"its {name} is not base64url as RFC 7515 writes it")
    return content
