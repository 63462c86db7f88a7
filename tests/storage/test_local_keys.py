"""storage.encryption.providers.local, and files of mode 0600."""

from __future__ import annotations

import base64
import os
import stat
import traceback
from pathlib import Path
from uuid import uuid4

import pytest

from storage.encryption.envelope import Kind, Label, new_key
from storage.encryption.providers import WrappedKey, load_library
from storage.encryption.providers.choice import open_provider
from storage.encryption.providers.local import LocalKeys, name_key, read_keys
from storage.encryption.secrets import SecretBytes
from storage.errors import DecryptionError, RootKeyError
from storage.private_files import read_private, write_private
from storage.settings import Settings

LABEL = Label(uuid4(), uuid4(), Kind.TENANT_KEY)


def _settings(**values: object) -> Settings:
    return Settings.model_validate({"DATABASE_URL": "postgresql://x", "REDIS_URL": "redis://x", **values})


def _encode(key: SecretBytes) -> str:
    return base64.b64encode(key.reveal()).decode()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with one root key."""
    write_private(tmp_path / "root.key", _encode(new_key()) + "\n")
    return tmp_path / "root.key"


def test_a_key_opens_with_the_root_key_that_wrapped_it_only() -> None:
    """Another root key is told apart by its name, and refused even under that name."""
    root, other = new_key(), new_key()
    key = new_key()
    wrapped = LocalKeys([root]).wrap(key, LABEL)
    assert LocalKeys([other, root]).unwrap(wrapped, LABEL) == key
    with pytest.raises(RootKeyError, match=wrapped.root_key_id):
        LocalKeys([other]).unwrap(wrapped, LABEL)
    with pytest.raises(DecryptionError):
        LocalKeys([other]).unwrap(WrappedKey(name_key(other), wrapped.ciphertext), LABEL)


def test_the_first_key_wraps_and_all_unwrap(file: Path) -> None:
    """Older keys on later lines, or after commas, open what they have wrapped."""
    keys = [new_key() for _ in range(3)]
    wrapped = [LocalKeys([key]).wrap(key, LABEL) for key in keys]
    write_private(file, "\n\n".join(map(_encode, keys)))
    from_file = open_provider(_settings(root_key_file=file))
    from_variable = open_provider(_settings(root_key=",".join(map(_encode, keys)), root_key_file=file))
    for provider in (from_file, from_variable):
        assert provider.known_root_keys() == [name_key(key) for key in keys]
        assert provider.root_key_id == provider.wrap(keys[1], LABEL).root_key_id == name_key(keys[0])
        assert [provider.unwrap(one, LABEL) for one in wrapped] == keys


@pytest.mark.parametrize("text", ["", "not base64!", "ümläut", base64.b64encode(b"too short").decode(), "AAAA," * 17])
def test_a_root_key_that_cannot_be_used_is_refused_with_the_fix(tmp_path: Path, text: str) -> None:
    """A missing, malformed or short key raises RootKeyError that names where the key belongs, and not the key."""
    with pytest.raises(RootKeyError, match="TIMBRELAY_ROOT_KEY") as caught:
        open_provider(_settings(root_key=text, root_key_file=tmp_path / "none"))
    (tmp_path / "root.key").write_text(text)
    (tmp_path / "root.key").chmod(0o600)
    with pytest.raises(RootKeyError, match="TIMBRELAY_ROOT_KEY_FILE") as from_file:
        open_provider(_settings(root_key_file=tmp_path / "root.key"))
    for error in (caught.value, from_file.value):
        assert not text or text not in "".join(traceback.format_exception(error))


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o666, 0o620])
def test_a_file_that_others_can_read_is_refused(file: Path, mode: int) -> None:
    """The refusal names the mode and the command that mends it, and after that command the key works."""
    file.chmod(mode)
    with pytest.raises(RootKeyError, match=rf"mode {mode:04o}.*chmod 600 {file}"):
        open_provider(_settings(root_key_file=file))
    file.chmod(0o600)
    assert open_provider(_settings(root_key_file=file)).root_key_id


def test_a_new_root_key_is_met_without_a_restart(file: Path) -> None:
    """Another process that holds the old line wraps with the new one and unwraps what it wrapped."""
    running, rotating = (LocalKeys.from_settings(_settings(root_key_file=file)) for _ in range(2))
    key, old = new_key(), running.root_key_id
    before = running.wrap(key, LABEL)
    made = rotating.make_root_key()
    assert made != old
    assert running.unwrap(rotating.wrap(key, LABEL), LABEL) == key
    assert running.wrap(key, LABEL).root_key_id == made
    assert rotating.unwrap(before, LABEL) == key
    rotating.destroy_root_key(old)
    rotating.destroy_root_key(old)
    assert rotating.known_root_keys() == running.known_root_keys() == [made]
    for provider in (running, rotating):
        with pytest.raises(RootKeyError):
            provider.unwrap(before, LABEL)


def test_the_root_key_in_use_is_not_destroyed(file: Path) -> None:
    """Whatever is asked, the file keeps the line that wraps."""
    provider = LocalKeys.from_settings(_settings(root_key_file=file))
    with pytest.raises(RootKeyError, match="in use"):
        provider.destroy_root_key(provider.root_key_id)
    assert len(read_keys(file)) == 1


def test_the_file_does_not_grow_for_ever(file: Path) -> None:
    """The seventeenth root key is refused, with the way to take old ones out."""
    provider = LocalKeys.from_settings(_settings(root_key_file=file))
    for _ in range(15):
        provider.make_root_key()
    with pytest.raises(RootKeyError, match="--destroy-old"):
        provider.make_root_key()
    assert len(read_keys(file)) == 16


def test_a_key_in_the_environment_is_not_ours_to_change() -> None:
    """Making and destroying are refused with what to do instead."""
    provider = LocalKeys([new_key(), new_key()])
    with pytest.raises(RootKeyError, match="put a new one before it"):
        provider.make_root_key()
    with pytest.raises(RootKeyError, match="take the old one out"):
        provider.destroy_root_key(provider.known_root_keys()[1])


def test_without_its_file_nothing_is_wrapped(file: Path) -> None:
    """A process whose file is gone does not go on wrapping with a root key that may be an old one by now."""
    provider = LocalKeys.from_settings(_settings(root_key_file=file))
    wrapped = provider.wrap(new_key(), LABEL)
    file.unlink()
    with pytest.raises(RootKeyError, match="No such file"):
        provider.wrap(new_key(), LABEL)
    assert provider.unwrap(wrapped, LABEL)


def test_a_file_is_written_whole_and_for_its_owner_alone(tmp_path: Path) -> None:
    """Mode 0600 whatever was there, through a link to what it names, and nothing is left beside it."""
    real = tmp_path / "real" / "root.key"
    real.parent.mkdir()
    real.write_text("before")
    real.chmod(0o644)
    (tmp_path / "link").symlink_to(real)
    write_private(tmp_path / "link", "after")
    assert (tmp_path / "link").is_symlink()
    assert (read_private(real), stat.S_IMODE(real.stat().st_mode)) == ("after", 0o600)
    assert [one.name for one in real.parent.iterdir()] == ["root.key"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can write for another user")
def test_a_file_stays_its_owners(tmp_path: Path) -> None:
    """When root rewrites the service's file, the service can still read it."""
    file = tmp_path / "root.key"
    file.write_text("before")
    os.chown(file, 65534, 65534)
    write_private(file, "after")
    assert (file.stat().st_uid, file.stat().st_gid) == (65534, 65534)


def test_what_cannot_be_written_leaves_the_file_as_it_was(file: Path) -> None:
    """A text that cannot be encoded raises, and the old content and nothing else is there."""
    before = file.read_bytes()
    with pytest.raises(UnicodeEncodeError):
        write_private(file, "\ud800")
    assert file.read_bytes() == before
    assert [one.name for one in file.parent.iterdir()] == ["root.key"]


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    """Somebody's mistake of naming a large file costs no memory."""
    write_private(tmp_path / "large", "A" * 17_000)
    with pytest.raises(OSError, match="larger than"):
        read_private(tmp_path / "large")


def test_a_missing_library_is_named_with_its_extra() -> None:
    """Whoever chooses a provider without its library is told what to install."""
    with pytest.raises(RootKeyError, match=r"aws_kms, which needs boto99: run `pip install 'timbrelay\[aws\]'`"):
        load_library("boto99", "aws", "aws_kms")


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"key_provider": "aws_kms"}, "set TIMBRELAY_KMS_KEY"),
        ({"key_provider": "vault_transit"}, "set TIMBRELAY_VAULT_URL"),
        ({"key_provider": "vault_transit", "vault_url": "http://x"}, "TIMBRELAY_VAULT_TOKEN_FILE"),
    ],
)
def test_what_a_provider_lacks_is_named(values: dict[str, str], sentence: str) -> None:
    """A chosen provider whose settings are missing says which."""
    with pytest.raises(RootKeyError, match=sentence):
        open_provider(_settings(**values))
