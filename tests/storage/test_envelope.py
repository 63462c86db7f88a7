"""storage.encryption.envelope and storage.encryption.keyring."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.encryption.envelope import Kind, Label, new_key, seal, unseal
from storage.encryption.keyring import RootKey
from storage.errors import DecryptionError, RootKeyError
from storage.settings import Settings

LABEL = Label(uuid4(), uuid4(), Kind.EMBEDDING, 1)


@given(st.binary(max_size=4096))
def test_what_is_sealed_opens_with_the_same_key_and_label(plaintext: bytes) -> None:
    """Sealing and unsealing gives the plaintext back, and the ciphertext does not hold it."""
    key = new_key()
    sealed = seal(key, plaintext, LABEL)
    assert unseal(key, sealed, LABEL) == plaintext
    assert len(plaintext) < 8 or plaintext not in sealed


@pytest.mark.parametrize(
    "label",
    [
        replace(LABEL, tenant=uuid4()),
        replace(LABEL, owner=uuid4()),
        replace(LABEL, version=2),
        replace(LABEL, kind=Kind.RECORDING),
    ],
)
def test_a_ciphertext_that_was_moved_does_not_open(label: Label) -> None:
    """Another tenant, owner, version or kind is another label, and the ciphertext is refused."""
    key = new_key()
    with pytest.raises(DecryptionError):
        unseal(key, seal(key, b"voiceprint", LABEL), label)


@given(st.integers(min_value=0), st.integers(1, 255))
def test_a_changed_byte_is_noticed(place: int, change: int) -> None:
    """Any byte of a sealed message that changes makes it unreadable."""
    key = new_key()
    sealed = bytearray(seal(key, b"voiceprint", LABEL))
    sealed[place % len(sealed)] ^= change
    with pytest.raises(DecryptionError):
        unseal(key, bytes(sealed), LABEL)


def test_a_truncated_ciphertext_is_a_decryption_error() -> None:
    """A ciphertext shorter than nonce and tag is refused like any other damage."""
    with pytest.raises(DecryptionError):
        unseal(new_key(), b"short", LABEL)


def test_a_data_key_opens_with_the_root_key_that_wrapped_it_only() -> None:
    """Unwrapping with another root key is refused."""
    root, other = RootKey(new_key()), RootKey(new_key())
    data_key, wrapped = root.wrap_new(LABEL)
    assert root.unwrap(wrapped, LABEL) == data_key
    assert root.id != other.id
    with pytest.raises(DecryptionError):
        other.unwrap(wrapped, LABEL)


def _settings(**values: object) -> Settings:
    return Settings.model_validate({"DATABASE_URL": "postgresql://x", "REDIS_URL": "redis://x", **values})


def test_the_root_key_comes_from_the_file_when_the_setting_is_empty(tmp_path: Path) -> None:
    """TIMBRELAY_ROOT_KEY_FILE is read, trailing newline and all."""
    secret = new_key()
    (tmp_path / "root.key").write_bytes(base64.b64encode(secret) + b"\n")
    assert RootKey.from_settings(_settings(root_key_file=tmp_path / "root.key")).secret == secret


@pytest.mark.parametrize("text", ["", "not base64!", base64.b64encode(b"too short").decode()])
def test_a_root_key_that_cannot_be_used_is_refused_with_the_fix(tmp_path: Path, text: str) -> None:
    """A missing, malformed or short key raises RootKeyError that names where the key belongs, and not the key."""
    with pytest.raises(RootKeyError, match="TIMBRELAY_ROOT_KEY") as caught:
        RootKey.from_settings(_settings(root_key=text, root_key_file=tmp_path / "none"))
    assert not text or text not in str(caught.value)


def test_the_root_key_is_not_in_its_repr() -> None:
    """Printing the key object shows nothing of the key."""
    secret = new_key()
    assert repr(secret)[2:-1] not in repr(RootKey(secret))
