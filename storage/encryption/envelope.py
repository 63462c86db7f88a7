"""Envelope encryption: a data key seals a person's data, a tenant key wraps the data key, a root key the tenant key.

AES-256-GCM (NIST SP 800-38D) with a random 96-bit nonce. The associated data names the tenant, the owner row, its
version and the kind of content, so a ciphertext that is moved to another row or tenant does not open. A data key
seals a handful of messages, and a tenant key some hundred thousand, far below the bound of 2^32 for random nonces.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from storage.encryption.secrets import SecretBytes
from storage.errors import DecryptionError

KEY_BYTES = 32
NONCE_BYTES = 12


class Kind(StrEnum):
    """What a ciphertext holds."""

    TENANT_KEY = "tenant-key"
    DATA_KEY = "data-key"
    SIGNING_KEY = "signing-key"
    CONSENT = "consent"
    CONSENT_RECORDING = "consent-recording"
    UPLOAD = "upload"
    RECORDING = "recording"
    EMBEDDING = "embedding"


@dataclass(frozen=True, slots=True)
class Label:
    """What a ciphertext is bound to; part of its authentication, not of its bytes."""

    tenant: UUID
    owner: UUID
    kind: Kind
    version: int = 0

    def associated_data(self) -> bytes:
        """The label as bytes, fixed in length and order so that no two labels read alike."""
        return self.tenant.bytes + self.owner.bytes + self.version.to_bytes(4, "big") + self.kind.encode()


def new_key() -> SecretBytes:
    """Return a fresh random key of 32 bytes."""
    return SecretBytes(secrets.token_bytes(KEY_BYTES))


def seal(key: SecretBytes, plaintext: bytes, label: Label) -> bytes:
    """Encrypt; returns nonce, ciphertext and tag in one string."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    return nonce + AESGCM(key.reveal()).encrypt(nonce, plaintext, label.associated_data())


def unseal(key: SecretBytes, sealed: bytes, label: Label) -> bytes:
    """Decrypt what `seal` made.

    Raises DecryptionError when key, bytes or label differ from those of the sealing.
    """
    nonce, ciphertext = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
    try:
        return AESGCM(key.reveal()).decrypt(nonce, ciphertext, label.associated_data())
    except (InvalidTag, ValueError) as error:
        raise DecryptionError(label.kind) from error
