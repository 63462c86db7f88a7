"""Who holds the root key: a file, the environment, a key management service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from storage.encryption.envelope import Label
from storage.encryption.secrets import SecretBytes


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """A key under a root key."""

    root_key_id: str
    """Which root key wrapped it; names the key and gives nothing of it away."""

    ciphertext: bytes


class KeyProvider(Protocol):
    """Wraps and unwraps keys with a root key that never reaches the database.

    The calls may go over a network, so a caller on an event loop makes them in a thread. They raise RootKeyError when
    the provider does not have (or not give) the key, ServerUnavailable when it does not answer in time, and
    DecryptionError when the ciphertext is not what its label says it is.
    """

    @property
    def root_key_id(self) -> str:
        """The root key that wraps from now on."""
        ...

    def wrap(self, key: SecretBytes, label: Label) -> WrappedKey:
        """The key under the current root key, bound to its label."""
        ...

    def unwrap(self, wrapped: WrappedKey, label: Label) -> SecretBytes:
        """The key in the clear, whichever root key that is still known wrapped it."""
        ...
