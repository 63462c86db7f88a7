"""The data folder: private, locked, and honest about what runs on it."""

from __future__ import annotations

import base64
import errno
import os
from pathlib import Path

import pytest

from storage.private_files import write_private
from timbrelay.errors import FolderError
from timbrelay.stack.folder import DataFolder, StackNote

NOTE = StackNote("http://127.0.0.1:1", {"relay": "http://127.0.0.1:2"}, "db", "owner", "redis", "key", {"relay": 3})


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    made = DataFolder(tmp_path / "home")
    made.prepare()
    return made


def test_the_folder_is_private(folder: DataFolder) -> None:
    """The data folder and what it holds belong to its user alone."""
    folder.write_note(NOTE)
    folder.ensure_root_key()
    assert folder.path.stat().st_mode & 0o777 == 0o700
    for file in (folder.note_file, folder.root_key_file, folder.log):
        assert file.stat().st_mode & 0o777 == 0o600, file


def test_the_root_key_is_made_once(folder: DataFolder) -> None:
    """The root key is 32 random bytes in base64, and stays the same."""
    first = folder.ensure_root_key().read_text()
    assert len(base64.b64decode(first, validate=False)) == 32
    assert folder.ensure_root_key().read_text() == first


def test_a_note_counts_only_while_a_stack_runs(folder: DataFolder) -> None:
    """A note that a crash left behind is known to be stale, since nobody holds the lock."""
    folder.write_note(NOTE)
    assert folder.note() is None
    with folder.lock():
        assert folder.note() == NOTE
    assert folder.note() is None


def test_an_unreadable_note_is_no_note(folder: DataFolder) -> None:
    """A damaged note, or one of another version, is as none."""
    with folder.lock():
        for content in ("", "{", "[]", '{"relay_url": 1}'):
            write_private(folder.note_file, content)
            assert folder.note() is None


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """A data folder that cannot be made or written is refused with the way out."""
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match=r"cannot be written \(.*\)\. Set TIMBRELAY_HOME to a folder that you can"):
        DataFolder(tmp_path / "file" / "home").prepare()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_named(folder: DataFolder, number: int) -> None:
    """A full disk is called that, with how much room is needed."""
    error = folder.explain(OSError(number, os.strerror(number)))
    assert "has no disk space left. Free at least 200 MB" in str(error)


def test_a_disk_without_room_is_refused(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A nearly full disk is refused before anything is started."""
    monkeypatch.setattr("timbrelay.stack.folder.MIN_FREE_BYTES", 2**62)
    with pytest.raises(FolderError, match="has no disk space left"):
        folder.prepare()
