"""Which key provider the settings ask for."""

from __future__ import annotations

from storage.encryption.providers import KeyProvider
from storage.encryption.providers.local import LocalKeys
from storage.settings import Settings


def open_provider(settings: Settings) -> KeyProvider:
    """The provider of root keys; raises RootKeyError."""
    return LocalKeys.from_settings(settings)
