"""Which key provider the settings ask for."""

from __future__ import annotations

from storage.encryption.providers import KeyProvider
from storage.encryption.providers.aws_kms import KmsKeys
from storage.encryption.providers.local import LocalKeys
from storage.encryption.providers.succession import Succession
from storage.encryption.providers.vault_transit import TransitKeys
from storage.settings import Settings


def open_provider(settings: Settings) -> KeyProvider:
    """The provider of root keys; raises RootKeyError.

    A library for a service over the network is imported when that service is the one that was chosen. Keys under a
    local root key, from before the service was chosen, are opened as long as the settings still have it.
    """
    if settings.key_provider == "aws_kms":
        return Succession(KmsKeys.from_settings(settings), lambda: LocalKeys.from_settings(settings))
    if settings.key_provider == "vault_transit":
        return Succession(TransitKeys.from_settings(settings), lambda: LocalKeys.from_settings(settings))
    return LocalKeys.from_settings(settings)
