"""Playing a file with what the machine has."""

from __future__ import annotations

from pathlib import Path

import pytest

from timbrelay.environment import Environment
from timbrelay.errors import OpsError
from timbrelay.player import play


def make_player(folder: Path, script: str) -> Environment:
    program = folder / "aplay"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return Environment.read({"PATH": str(folder), "TIMBRELAY_HOME": str(folder)})


def test_the_file_is_handed_to_the_player(tmp_path: Path) -> None:
    """A player that is installed is given the file."""
    environment = make_player(tmp_path, 'echo "$@" > played')
    assert play(environment, tmp_path / "demo.wav")
    assert (tmp_path / "played").read_text() == f"-q {tmp_path / 'demo.wav'}\n"


def test_a_machine_without_a_player_says_so(tmp_path: Path) -> None:
    """Without any player nothing happens, and the caller learns of it."""
    assert not play(Environment.read({"PATH": str(tmp_path), "TIMBRELAY_HOME": str(tmp_path)}), tmp_path / "demo.wav")


def test_a_player_that_fails_is_named(tmp_path: Path) -> None:
    """What a failing player said is in the log."""
    environment = make_player(tmp_path, "echo no sound card >&2; exit 1")
    with pytest.raises(OpsError, match=r"aplay could not play .*demo\.wav; its words are at the end of"):
        play(environment, tmp_path / "demo.wav")
    assert (tmp_path / "stack.log").read_text() == "no sound card\n"
