"""The doctor: every check is made, and each finding names the fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from timbrelay.commands.doctor import Check, check_folder, check_python, check_space, examine
from timbrelay.errors import OpsError
from worker.errors import BundleError


def test_one_fault_does_not_hide_another() -> None:
    """After a check that failed the others are made all the same."""

    def fail() -> str:
        raise BundleError("b", "it is damaged", "fetch it again")

    findings = list(examine([Check("bad", fail), Check("good", lambda: "all is well")]))
    assert [str(finding) for finding in findings] == [
        "failed  bad: bundle b: it is damaged; fetch it again",
        "ok      good: all is well",
    ]


def test_an_old_python_is_found() -> None:
    """A Python before 3.11 is a fault."""
    assert check_python((3, 11)) == "3.11"
    with pytest.raises(OpsError, match="is too old; install Python"):
        check_python((3, 10))


def test_a_folder_is_made_private(tmp_path: Path) -> None:
    """The data folder is made when it is not there, and is closed to others."""
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    assert check_folder(home) == str(home)
    assert home.stat().st_mode & 0o777 == 0o700


def test_a_full_disk_is_found(tmp_path: Path) -> None:
    """Too little room is a fault that says how much is needed."""
    assert check_space(tmp_path, needed=1).endswith("MB free")
    with pytest.raises(OpsError, match="free at least"):
        check_space(tmp_path, needed=2**62)
