"""The root key, and data keys wrapped by it."""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass, field

from storage.encryption.envelope import KEY_BYTES, Label, new_key, seal, unseal
from storage.errors import RootKeyError
from storage.settings import Settings


@dataclass(frozen=True, slots=True)
class RootKey:
    """The key that wraps data keys; it never leaves the process and never reaches the database."""

    secret: bytes = field(repr=False)

    @classmethod
    def from_settings(cls, settings: Settings) -> RootKey:
        """Read the key from the settings or from the file they name.

        Raises RootKeyError with the fix when there is none or it is not 32 bytes of base64.
        """
        encoded = settings.root_key.get_secret_value()
        source = "TIMBRELAY_ROOT_KEY"
        if not encoded:
            source = f"TIMBRELAY_ROOT_KEY_FILE ({settings.root_key_file})"
            try:
                encoded = settings.root_key_file.read_text("ascii")
            except (OSError, UnicodeDecodeError) as error:
                raise RootKeyError(f"no root key: set TIMBRELAY_ROOT_KEY or make {source} readable") from error
        return cls(_decode(encoded, source))

    @property
    def id(self) -> str:
        """A name for the key that gives nothing of it away: the start of its SHA-256."""
        return hashlib.sha256(b"timbrelay root key id" + self.secret).hexdigest()[:16]

    def wrap_new(self, label: Label) -> tuple[bytes, bytes]:
        """Make a data key; returns it in the clear, and wrapped for the database."""
        data_key = new_key()
        return data_key, seal(self.secret, data_key, label)

    def unwrap(self, wrapped: bytes, label: Label) -> bytes:
        """Return the data key in the clear; raises DecryptionError."""
        return unseal(self.secret, wrapped, label)


def _decode(encoded: str, source: str) -> bytes:
    try:
        secret = base64.b64decode(encoded.strip(), validate=True)
    except binascii.Error as error:
        raise RootKeyError(f"{source} is not base64") from error
    if len(secret) != KEY_BYTES:
        raise RootKeyError(
            f"{source} holds {len(secret)} bytes; a root key has {KEY_BYTES}, for example from "
            "`head -c 32 /dev/urandom | base64`"
        )
    return secret
