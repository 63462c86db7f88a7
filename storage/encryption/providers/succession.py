"""From a root key of our own to one in a service: what the old one has wrapped opens until it is wrapped anew."""

from __future__ import annotations

import re
from collections.abc import Callable

from storage.encryption.envelope import Label
from storage.encryption.providers import KeyProvider, WrappedKey
from storage.encryption.secrets import SecretBytes
from storage.errors import RootKeyError

_LOCAL = re.compile(r"[0-9a-f]{16}")
"""How local root keys are called, and those of no service."""


class Succession:
    """A KeyProvider that wraps with the new one only, and opens the local one when something is still under it."""

    def __init__(self, provider: KeyProvider, open_local: Callable[[], KeyProvider]) -> None:
        self._provider = provider
        self._open_local = open_local
        self._local: KeyProvider | None = None

    @property
    def root_key_id(self) -> str:
        """The new provider's."""
        return self._provider.root_key_id

    def wrap(self, key: SecretBytes, label: Label) -> WrappedKey:
        """With the new provider."""
        return self._provider.wrap(key, label)

    def unwrap(self, wrapped: WrappedKey, label: Label) -> SecretBytes:
        """With whichever has wrapped it; raises RootKeyError when that is the local one and its key is not there."""
        if not _LOCAL.fullmatch(wrapped.root_key_id):
            return self._provider.unwrap(wrapped, label)
        try:
            self._local = self._local or self._open_local()
        except RootKeyError as error:
            raise RootKeyError(f"a key is still under the local root key {wrapped.root_key_id}: {error}") from error
        return self._local.unwrap(wrapped, label)

    def make_root_key(self) -> str:
        """At the new provider."""
        return self._provider.make_root_key()

    def known_root_keys(self) -> list[str]:
        """The new provider's."""
        return self._provider.known_root_keys()

    def destroy_root_key(self, root_key_id: str) -> None:
        """At the new provider; a local one is its owner's to destroy, which RootKeyError says."""
        if _LOCAL.fullmatch(root_key_id):
            raise RootKeyError(
                f"the root key {root_key_id} wraps nothing any more: destroy what TIMBRELAY_ROOT_KEY or "
                "TIMBRELAY_ROOT_KEY_FILE holds, and unset them"
            )
        self._provider.destroy_root_key(root_key_id)
