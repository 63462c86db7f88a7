"""storage.encryption.envelope and storage.encryption.secrets."""

from __future__ import annotations

import copy
import json
import pickle
import traceback
from dataclasses import replace
from uuid import uuid4

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from storage.encryption.envelope import NONCE_BYTES, Kind, Label, new_key, seal, unseal
from storage.encryption.secrets import SecretBytes
from storage.errors import DecryptionError

LABEL = Label(uuid4(), uuid4(), Kind.EMBEDDING, 1)
LABELS = st.builds(
    Label, tenant=st.uuids(), owner=st.uuids(), kind=st.sampled_from(Kind), version=st.integers(0, 2**31 - 1)
)
PLAIN = b"a voiceprint"


@given(st.binary(max_size=4096), LABELS)
def test_what_is_sealed_opens_with_the_same_key_and_label(plaintext: bytes, label: Label) -> None:
    """Sealing and unsealing gives the plaintext back, and the ciphertext does not hold it."""
    key = new_key()
    sealed = seal(key, plaintext, label)
    assert unseal(key, sealed, label) == plaintext
    assert len(plaintext) < 8 or plaintext not in sealed


@given(LABELS, LABELS, st.sets(st.sampled_from(["tenant", "owner", "kind", "version"]), min_size=1))
def test_a_ciphertext_that_was_moved_does_not_open(label: Label, other: Label, fields: set[str]) -> None:
    """Another tenant, owner, version or kind, in any combination, is another label, and the ciphertext is refused."""
    moved = replace(label, **{name: getattr(other, name) for name in fields})
    assume(moved != label)
    key = new_key()
    with pytest.raises(DecryptionError):
        unseal(key, seal(key, PLAIN, label), moved)


@given(LABELS, LABELS)
def test_no_two_labels_read_alike(label: Label, other: Label) -> None:
    """The bytes that a ciphertext is bound to are those of one label only."""
    assert (label.associated_data() == other.associated_data()) == (label == other)


@given(st.integers(min_value=0), st.integers(0, 7))
def test_a_changed_bit_is_noticed(place: int, bit: int) -> None:
    """Any bit of nonce, ciphertext or tag that changes makes the message unreadable."""
    key = new_key()
    sealed = bytearray(seal(key, PLAIN, LABEL))
    sealed[place % len(sealed)] ^= 1 << bit
    with pytest.raises(DecryptionError):
        unseal(key, bytes(sealed), LABEL)


@given(st.integers(0, 32 * 8 - 1))
def test_a_key_that_differs_in_a_bit_does_not_open(bit: int) -> None:
    """Every bit of the key counts."""
    key = new_key()
    other = bytearray(key.reveal())
    other[bit // 8] ^= 1 << bit % 8
    with pytest.raises(DecryptionError):
        unseal(SecretBytes(bytes(other)), seal(key, PLAIN, LABEL), LABEL)


@pytest.mark.parametrize("length", [0, 1, NONCE_BYTES, NONCE_BYTES + 15, len(PLAIN) + 27])
def test_a_truncated_ciphertext_is_a_decryption_error(length: int) -> None:
    """A ciphertext that was cut, even below nonce and tag, is refused like any other damage."""
    key = new_key()
    with pytest.raises(DecryptionError):
        unseal(key, seal(key, PLAIN, LABEL)[:length], LABEL)


def test_every_sealing_has_a_nonce_of_its_own() -> None:
    """The same plaintext under the same key and label never gives the same nonce or bytes again."""
    key = new_key()
    sealed = {seal(key, PLAIN, LABEL) for _ in range(1000)}
    assert len(sealed) == len({message[:NONCE_BYTES] for message in sealed}) == 1000


def test_keys_are_fresh() -> None:
    """No key is made twice, and each has 32 bytes."""
    keys = {new_key().reveal() for _ in range(1000)}
    assert len(keys) == 1000
    assert {len(key) for key in keys} == {32}


@pytest.mark.parametrize("show", [repr, str, format, ascii, "{}".format, "{!r:>40}".format, lambda s: f"{[s]}"])
def test_a_secret_is_not_seen_however_it_is_shown(show: object) -> None:
    """No way of making text of a secret shows anything of it."""
    assert callable(show)
    assert "hush" not in show(SecretBytes(b"hush"))


@pytest.mark.parametrize("take", [json.dumps, pickle.dumps, copy.copy, copy.deepcopy, bytes, hash, iter])
def test_a_secret_does_not_leave_by_accident(take: object) -> None:
    """JSON, pickle, copies, hashes and plain bytes of a secret are refused, and the refusal does not show it."""
    assert callable(take)
    with pytest.raises(TypeError) as caught:
        take(SecretBytes(b"hush"))
    assert "hush" not in str(caught.value)


def test_an_error_shows_neither_key_nor_plaintext() -> None:
    """The whole traceback of a failed decryption holds nothing secret."""
    key, plaintext = SecretBytes(b"hush" * 8), b"my secret pin"
    sealed = seal(key, plaintext, LABEL)
    with pytest.raises(DecryptionError) as caught:
        unseal(key, sealed, replace(LABEL, version=2))
    told = "".join(traceback.format_exception(caught.value))
    assert "hush" not in told
    assert "pin" not in told


def test_secrets_are_compared_by_what_they_hold() -> None:
    """Two secrets are equal when their bytes are, and a secret never equals plain bytes."""
    assert SecretBytes(b"a") == SecretBytes(b"a")
    assert SecretBytes(b"a") != SecretBytes(b"b")
    assert SecretBytes(b"a") != b"a"
