"""Who holds the root key: a file, the environment, a key management service."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Protocol

from storage.encryption.envelope import Label
from storage.encryption.secrets import SecretBytes
from storage.errors import RootKeyError


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """A key under a root key."""

    root_key_id: str
    """Which root key wrapped it; names the key and gives nothing of it away."""

    ciphertext: bytes


class KeyProvider(Protocol):
    """Wraps and unwraps keys with a root key that never reaches the database.

    The calls may go over a network, so a caller on an event loop makes them in a thread; several threads may. They
    raise RootKeyError when the provider does not have (or not give) the key, ServerUnavailable when it does not answer
    in time, and DecryptionError when the ciphertext is not what its label says it is.
    """

    @property
    def root_key_id(self) -> str:
        """The root key that wraps from now on, at most 128 printable characters without spaces."""
        ...

    def wrap(self, key: SecretBytes, label: Label) -> WrappedKey:
        """The key under the current root key, bound to its label."""
        ...

    def unwrap(self, wrapped: WrappedKey, label: Label) -> SecretBytes:
        """The key in the clear, whichever root key that is still known wrapped it."""
        ...

    def make_root_key(self) -> str:
        """Make a new root key, which wraps from now on, and keep the older ones for unwrapping; returns its id.

        Raises RootKeyError that says what to do where it is not ours to make.
        """
        ...

    def known_root_keys(self) -> list[str]:
        """The root keys that the provider can tell of, the current one first."""
        ...

    def destroy_root_key(self, root_key_id: str) -> None:
        """Destroy an older root key, and with it whatever it still wraps; nothing happens when it is gone already."""
        ...


def load_library(name: str, extra: str, setting: str) -> Any:
    """A provider's client library; raises RootKeyError that names the extra to install."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise RootKeyError(
            f"TIMBRELAY_KEY_PROVIDER is {setting}, which needs {name}: run `pip install 'timbrelay[{extra}]'`"
        ) from error
