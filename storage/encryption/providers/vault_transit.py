"""Root keys in the Transit engine of HashiCorp Vault or OpenBao: they never leave it; the label is associated data.

Vault API documentation, "Transit secrets engine": encrypt, decrypt, keys, rotate, config, trim. A ciphertext names the
version of the key in its prefix, `vault:v3:`. `rewrap` is not used: it takes no associated data, so it refuses what is
bound to a label, and the context that it takes binds nothing unless the key was made with `derived`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from storage.encryption.envelope import Label
from storage.encryption.providers import WrappedKey, load_library
from storage.encryption.secrets import SecretBytes
from storage.errors import DecryptionError, RootKeyError, ServerUnavailable, StorageError
from storage.private_files import read_private
from storage.settings import Settings

CONNECT_TIMEOUT_S = 1.0
READ_TIMEOUT_S = 2.0
_ROOT_KEY = re.compile(
    r"(?P<mount>[A-Za-z0-9_-]+(?:/[A-Za-z0-9_-]+)*)/(?P<key>[A-Za-z0-9_-]+):v(?P<version>[0-9]{1,9})"
)
_CIPHERTEXT = re.compile(rb"vault:v(?P<version>[0-9]{1,9}):[A-Za-z0-9+/=]+")
# Vault lets any member of the process's group read what it writes for it.
_OTHERS = 0o007


class TransitKeys:
    """A KeyProvider over Vault Transit; a root key is one version of the named key, `MOUNT/KEY:vN`."""

    def __init__(self, client: Any, mount: str, key: str, token: SecretStr | Path) -> None:
        self._client = client
        self._mount = mount
        self._key = key
        self._token = token

    @classmethod
    def from_settings(cls, settings: Settings) -> TransitKeys:
        """Raises RootKeyError when hvac or a setting is missing; the network is not touched yet."""
        token: SecretStr | Path = settings.vault_token
        if not settings.vault_token.get_secret_value():
            token = settings.vault_token_file
        if not settings.vault_url or token == Path():
            raise RootKeyError(
                "no root key: set TIMBRELAY_VAULT_URL, and TIMBRELAY_VAULT_TOKEN_FILE or TIMBRELAY_VAULT_TOKEN"
            )
        hvac = load_library("hvac", "vault", "vault_transit")
        client = hvac.Client(
            url=settings.vault_url,
            # Ours goes with each call; with None, one from the environment would take its place.
            token="",
            timeout=(CONNECT_TIMEOUT_S, READ_TIMEOUT_S),
            namespace=settings.vault_namespace or None,
            allow_redirects=False,
        )
        return cls(client, settings.vault_mount, settings.vault_key, token)

    @property
    def root_key_id(self) -> str:
        """The latest version; asks Vault, which needs the right to read `MOUNT/keys/KEY`."""
        return self._name(int(self._read_key()["latest_version"]))

    def wrap(self, key: SecretBytes, label: Label) -> WrappedKey:
        """Encrypt with the latest version."""
        question = {"plaintext": _encode(key.reveal()), "associated_data": _encode(label.associated_data())}
        answer = self._ask("post", f"{self._mount}/encrypt/{self._key}", question)
        ciphertext = str(answer["data"]["ciphertext"]).encode()
        if (found := _CIPHERTEXT.fullmatch(ciphertext)) is None:
            raise RootKeyError("Vault Transit answered with a ciphertext of an unknown form")
        return WrappedKey(self._name(int(found["version"])), ciphertext)

    def unwrap(self, wrapped: WrappedKey, label: Label) -> SecretBytes:
        """Decrypt with the version that wrapped it, of the key that was in use then."""
        # Both come from the database, and go into an address: nothing but names gets there.
        found, its_version = _ROOT_KEY.fullmatch(wrapped.root_key_id), _CIPHERTEXT.fullmatch(wrapped.ciphertext)
        if found is None:
            raise RootKeyError(f"the root key {wrapped.root_key_id!r} is none of Vault Transit's")
        if its_version is None:
            raise DecryptionError(label.kind)
        question = {
            "ciphertext": wrapped.ciphertext.decode(),
            "associated_data": _encode(label.associated_data()),
        }
        answer = self._ask("post", f"{found['mount']}/decrypt/{found['key']}", question, label)
        return SecretBytes(base64.b64decode(answer["data"]["plaintext"]))

    def make_root_key(self) -> str:
        """Make a new version; needs the right to write `MOUNT/keys/KEY/rotate`."""
        self._ask("post", f"{self._mount}/keys/{self._key}/rotate", {})
        return self.root_key_id

    def known_root_keys(self) -> list[str]:
        """Every version that Vault still has."""
        return [self._name(version) for version in sorted(map(int, self._read_key()["keys"]), reverse=True)]

    def destroy_root_key(self, root_key_id: str) -> None:
        """Trim the key up to this version; Vault keeps versions without a gap, so older ones go with it."""
        key, found = self._read_key(), _ROOT_KEY.fullmatch(root_key_id)
        if found is None or (found["mount"], found["key"]) != (self._mount, self._key):
            raise RootKeyError(f"the root key {root_key_id!r} is not one of {self._mount}/{self._key}")
        if int(found["version"]) >= int(key["latest_version"]):
            raise RootKeyError(f"the root key {root_key_id} is in use and is not destroyed")
        least = max(int(found["version"]) + 1, int(key["min_available_version"]))
        address = f"{self._mount}/keys/{self._key}"
        # Trimming takes both bounds as given, and neither may be below what is left.
        bounds = {"min_decryption_version": least, "min_encryption_version": least}
        self._ask("post", f"{address}/config", bounds)
        self._ask("post", f"{address}/trim", {"min_available_version": least})

    def _read_key(self) -> dict[str, Any]:
        data: dict[str, Any] = self._ask("get", f"{self._mount}/keys/{self._key}", {})["data"]
        return data

    def _name(self, version: int) -> str:
        return f"{self._mount}/{self._key}:v{version}"

    def _ask(
        self, method: str, address: str, question: Mapping[str, object], label: Label | None = None
    ) -> dict[str, Any]:
        hvac, requests = (load_library(name, "vault", "vault_transit") for name in ("hvac", "requests"))
        call: Callable[..., Any] = getattr(self._client.adapter, method)
        body = {"json": dict(question)} if question else {}
        try:
            answer = call(f"/v1/{address}", headers={"X-Vault-Token": self._read_token()}, **body)
        except hvac.exceptions.VaultError as error:
            raise _translate(hvac, error, label, address) from error
        except requests.exceptions.RequestException as error:
            raise ServerUnavailable("Vault", type(error).__name__) from error
        return answer if isinstance(answer, dict) else {}

    def _read_token(self) -> str:
        if isinstance(self._token, SecretStr):
            return self._token.get_secret_value()
        try:
            return read_private(self._token, _OTHERS).strip()
        except OSError as error:
            raise RootKeyError(
                f"no token from TIMBRELAY_VAULT_TOKEN_FILE ({self._token}): {error.strerror or error}"
            ) from error


def _encode(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _translate(hvac: Any, error: Exception, label: Label | None, address: str) -> StorageError:
    said = str(error).lower()
    if isinstance(error, hvac.exceptions.Forbidden | hvac.exceptions.Unauthorized):
        return RootKeyError(f"Vault forbids {address}: renew the token, or allow it in its policy (docs/keys.md)")
    if isinstance(error, hvac.exceptions.InvalidPath) or "key not found" in said:
        return RootKeyError(f"Vault has nothing at {address}: check TIMBRELAY_VAULT_MOUNT and TIMBRELAY_VAULT_KEY")
    if "version" in said and ("too old" in said or "disallowed" in said):
        return RootKeyError(f"Vault does not have that version of {address} any more")
    if isinstance(error, hvac.exceptions.InvalidRequest):
        return DecryptionError(label.kind) if label is not None else RootKeyError(f"Vault refuses {address}")
    return ServerUnavailable("Vault", type(error).__name__)
