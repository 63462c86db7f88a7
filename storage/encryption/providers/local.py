"""Root keys from a file or the environment: one a line, the first wraps, the others only unwrap (docs/runbooks)."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence

from storage.encryption.envelope import KEY_BYTES, Label, seal, unseal
from storage.encryption.providers import WrappedKey
from storage.encryption.secrets import SecretBytes
from storage.errors import RootKeyError
from storage.settings import Settings

_KEYS_LIMIT = 16
_EXAMPLE = "for example from `head -c 32 /dev/urandom | base64`"


class LocalKeys:
    """A KeyProvider over keys that this process holds itself."""

    def __init__(self, keys: Sequence[SecretBytes]) -> None:
        self._keys = {name_key(key): key for key in keys}
        self._current = name_key(keys[0])

    @classmethod
    def from_settings(cls, settings: Settings) -> LocalKeys:
        """Read the keys from `root_key`, or from the file that `root_key_file` names.

        Raises RootKeyError with the fix when there is none, or one that is not 32 bytes of base64.
        """
        encoded = settings.root_key.get_secret_value()
        source = "TIMBRELAY_ROOT_KEY"
        if not encoded:
            source = f"TIMBRELAY_ROOT_KEY_FILE ({settings.root_key_file})"
            try:
                encoded = settings.root_key_file.read_text("ascii")
            except (OSError, UnicodeDecodeError) as error:
                raise RootKeyError(f"no root key: set TIMBRELAY_ROOT_KEY or make {source} readable") from error
        return cls(parse_keys(encoded, source))

    @property
    def root_key_id(self) -> str:
        """The first key's name."""
        return self._current

    def wrap(self, key: SecretBytes, label: Label) -> WrappedKey:
        """Seal with the first key."""
        return WrappedKey(self._current, seal(self._keys[self._current], key.reveal(), label))

    def unwrap(self, wrapped: WrappedKey, label: Label) -> SecretBytes:
        """Unseal; raises RootKeyError for a key that is not among ours (any more), or DecryptionError."""
        key = self._keys.get(wrapped.root_key_id)
        if key is None:
            raise RootKeyError(
                f"the root key {wrapped.root_key_id} is not among those that are configured; "
                "if it was not destroyed on purpose, add its line again"
            )
        return SecretBytes(unseal(key, wrapped.ciphertext, label))


def name_key(key: SecretBytes) -> str:
    """A name for a root key that gives nothing of it away: the start of its SHA-256."""
    return hashlib.sha256(b"timbrelay root key id" + key.reveal()).hexdigest()[:16]


def parse_keys(encoded: str, source: str) -> list[SecretBytes]:
    """The keys of a text, one a line or between commas; raises RootKeyError that names the source."""
    lines = [line.strip() for line in encoded.replace(",", "\n").splitlines() if line.strip()]
    if not 1 <= len(lines) <= _KEYS_LIMIT:
        raise RootKeyError(f"{source} holds {len(lines)} root keys; it takes 1 to {_KEYS_LIMIT}, {_EXAMPLE}")
    return [_decode(line, source) for line in lines]


def _decode(line: str, source: str) -> SecretBytes:
    try:
        secret = base64.b64decode(line, validate=True)
    except binascii.Error as error:
        raise RootKeyError(f"{source} is not base64") from error
    if len(secret) != KEY_BYTES:
        raise RootKeyError(f"{source} holds {len(secret)} bytes; a root key has {KEY_BYTES}, {_EXAMPLE}")
    return SecretBytes(secret)
