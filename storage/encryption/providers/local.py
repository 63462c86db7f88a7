"""Root keys from a file or the environment: one a line, the first wraps, the others only unwrap (docs/keys.md)."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from storage.encryption.envelope import KEY_BYTES, Label, new_key, seal, unseal
from storage.encryption.providers import WrappedKey
from storage.encryption.secrets import SecretBytes
from storage.errors import RootKeyError
from storage.private_files import read_private, write_private
from storage.settings import Settings

_KEYS_LIMIT = 16
_EXAMPLE = "for example from `head -c 32 /dev/urandom | base64`"


@dataclass(frozen=True, slots=True)
class _Ring:
    keys: dict[str, SecretBytes]
    current: str

    @classmethod
    def of(cls, keys: Sequence[SecretBytes]) -> _Ring:
        return cls({name_key(key): key for key in keys}, name_key(keys[0]))


class LocalKeys:
    """A KeyProvider over keys that this process holds itself.

    With a file, it is read again before a key is wrapped and when an unknown root key is met: a rotation shows in all
    running processes without a restart.
    """

    def __init__(self, keys: Sequence[SecretBytes], file: Path | None = None) -> None:
        self._ring = _Ring.of(keys)
        self._file = file

    @classmethod
    def from_settings(cls, settings: Settings) -> LocalKeys:
        """Read the keys from `root_key`, or from the file that `root_key_file` names.

        Raises RootKeyError with the fix when there is none, one that others can read, or one that is not 32 bytes of
        base64.
        """
        encoded = settings.root_key.get_secret_value()
        if encoded:
            return cls(parse_keys(encoded, "TIMBRELAY_ROOT_KEY"))
        return cls(read_keys(settings.root_key_file), settings.root_key_file)

    @property
    def root_key_id(self) -> str:
        """The first key's name."""
        return self._read_again().current

    def wrap(self, key: SecretBytes, label: Label) -> WrappedKey:
        """Seal with the first key; raises RootKeyError when the file cannot be read (any more)."""
        ring = self._read_again()
        return WrappedKey(ring.current, seal(ring.keys[ring.current], key.reveal(), label))

    def unwrap(self, wrapped: WrappedKey, label: Label) -> SecretBytes:
        """Unseal; raises RootKeyError for a key that is not among ours (any more), or DecryptionError."""
        key = self._ring.keys.get(wrapped.root_key_id) or self._read_again().keys.get(wrapped.root_key_id)
        if key is None:
            raise RootKeyError(
                f"the root key {wrapped.root_key_id} is not among those that are configured; "
                "if it was not destroyed on purpose, add its line again"
            )
        return SecretBytes(unseal(key, wrapped.ciphertext, label))

    def make_root_key(self) -> str:
        """Put a new first line into the file."""
        file = self._own_file("put a new one before it, and a comma between, where the variable is set")
        keys = read_keys(file)
        if len(keys) >= _KEYS_LIMIT:
            raise RootKeyError(
                f"{file} holds {len(keys)} root keys already; take out those that wrap nothing any more with "
                "`timbrelay keys rotate --root --destroy-old`"
            )
        _write_keys(file, [new_key(), *keys])
        return self.root_key_id

    def known_root_keys(self) -> list[str]:
        """The names of all lines."""
        return list(self._read_again().keys)

    def destroy_root_key(self, root_key_id: str) -> None:
        """Take an older key's line out of the file; raises RootKeyError for the current one."""
        file = self._own_file("take the old one out where the variable is set")
        if root_key_id == self.root_key_id:
            raise RootKeyError(f"the root key {root_key_id} is in use and is not destroyed")
        keys = read_keys(file)
        left = [key for key in keys if name_key(key) != root_key_id]
        if len(left) < len(keys):
            _write_keys(file, left)
        self._read_again()

    def _read_again(self) -> _Ring:
        if self._file is not None:
            self._ring = _Ring.of(read_keys(self._file))
        return self._ring

    def _own_file(self, instead: str) -> Path:
        if self._file is None:
            raise RootKeyError(f"the root key stands in TIMBRELAY_ROOT_KEY, which is not ours to change: {instead}")
        return self._file


def name_key(key: SecretBytes) -> str:
    """A name for a root key that gives nothing of it away: the start of its SHA-256."""
    return hashlib.sha256(b"timbrelay root key id" + key.reveal()).hexdigest()[:16]


def read_keys(file: Path) -> list[SecretBytes]:
    """The keys of a file that only its owner can read; raises RootKeyError with the fix."""
    source = f"TIMBRELAY_ROOT_KEY_FILE ({file})"
    if file == Path():
        raise RootKeyError("no root key: set TIMBRELAY_ROOT_KEY or TIMBRELAY_ROOT_KEY_FILE")
    try:
        return parse_keys(read_private(file), source)
    except OSError as error:
        raise RootKeyError(f"no root key from {source}: {error.strerror or error} (docs/keys.md)") from error


def parse_keys(encoded: str, source: str) -> list[SecretBytes]:
    """The keys of a text, one a line or between commas; raises RootKeyError that names the source."""
    lines = [line.strip() for line in encoded.replace(",", "\n").splitlines() if line.strip()]
    if not 1 <= len(lines) <= _KEYS_LIMIT:
        raise RootKeyError(f"{source} holds {len(lines)} root keys; it takes 1 to {_KEYS_LIMIT}, {_EXAMPLE}")
    return [_decode(line, source) for line in lines]


def _write_keys(file: Path, keys: Sequence[SecretBytes]) -> None:
    lines = [base64.b64encode(key.reveal()).decode() for key in keys]
    try:
        write_private(file, "\n".join(lines) + "\n")
    except OSError as error:
        raise RootKeyError(f"the root key file {file} cannot be written: {error.strerror or error}") from error


def _decode(line: str, source: str) -> SecretBytes:
    try:
        secret = base64.b64decode(line, validate=True)
    except (binascii.Error, ValueError):
        raise RootKeyError(f"{source} is not base64") from None
    if len(secret) != KEY_BYTES:
        raise RootKeyError(f"{source} holds {len(secret)} bytes; a root key has {KEY_BYTES}, {_EXAMPLE}")
    return SecretBytes(secret)
