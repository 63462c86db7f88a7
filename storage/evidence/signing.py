"""The service's signing key: made on first use, its private part wrapped by the key provider like every other key.

Of rotated keys the public part stays, so what they signed is verified for ever, and the private part goes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from uuid import UUID, uuid4

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from sqlalchemy import func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.encryption.envelope import Kind, Label
from storage.encryption.keyring import Keyring
from storage.encryption.providers import WrappedKey
from storage.encryption.secrets import SecretBytes
from storage.evidence import jws
from storage.evidence.audit import PLATFORM, lock
from storage.tables import signing_keys

_active = (signing_keys.c.retired_at.is_(None),)


class Signer:
    """Signs in the service's name; shows its public key and never the private one."""

    __slots__ = ("_key",)

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    @property
    def key_id(self) -> str:
        """The `kid` of what it signs."""
        return jws.name_key(self._key.public_key())

    @property
    def public_key(self) -> Ed25519PublicKey:
        """What verifies its signatures."""
        return self._key.public_key()

    def sign(self, kind: str, payload: Mapping[str, object]) -> str:
        """The payload as a compact JWS of the type `kind`."""
        return jws.sign(self._key, kind, payload)

    def __repr__(self) -> str:
        return f"Signer({self.key_id})"


async def load_signer(connection: AsyncConnection, keyring: Keyring) -> Signer:
    """The signer with the current key, which is made by whoever needs it first.

    Raises RootKeyError, ServerUnavailable or DecryptionError when the provider does not unwrap it.
    """
    query = select(signing_keys).where(*_active)
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        await lock(connection, "signing key")
        row = (await connection.execute(query)).one_or_none()
    if row is None:
        return await _make_key(connection, keyring)
    wrapped = WrappedKey(row.root_key_id, row.wrapped_key)
    seed = await asyncio.to_thread(keyring.provider.unwrap, wrapped, label_of(row.id))
    return Signer(Ed25519PrivateKey.from_private_bytes(seed.reveal()))


async def rotate_signer(connection: AsyncConnection, keyring: Keyring) -> Signer:
    """Make a new key and destroy the private part of the one before; raises as `load_signer` does."""
    await lock(connection, "signing key")
    retired = {"retired_at": func.now(), "wrapped_key": None, "root_key_id": None}
    await connection.execute(update(signing_keys).where(*_active).values(retired))
    return await _make_key(connection, keyring)


async def load_public_keys(connection: AsyncConnection) -> dict[str, Ed25519PublicKey]:
    """Every key that ever signed, by its key id, newest first."""
    query = select(signing_keys.c.public_key).order_by(signing_keys.c.created_at.desc()).limit(jws.KEYS_LIMIT)
    found = [Ed25519PublicKey.from_public_bytes(raw) for raw in (await connection.execute(query)).scalars()]
    return {jws.name_key(key): key for key in found}


def label_of(signing_key_id: str) -> Label:
    """What the wrapped private part of a row of `keyring.signing_keys` is bound to."""
    return Label(PLATFORM, UUID(signing_key_id), Kind.SIGNING_KEY)


async def _make_key(connection: AsyncConnection, keyring: Keyring) -> Signer:
    key, key_id = Ed25519PrivateKey.generate(), str(uuid4())
    seed = SecretBytes(key.private_bytes_raw())
    wrapped = await keyring.wrap(connection, seed, label_of(key_id))
    values = {"wrapped_key": wrapped.ciphertext, "root_key_id": wrapped.root_key_id}
    await connection.execute(
        insert(signing_keys).values(id=key_id, public_key=key.public_key().public_bytes_raw(), **values)
    )
    return Signer(key)
