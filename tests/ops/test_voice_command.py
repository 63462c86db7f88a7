"""`timbrelay voice`: each word becomes a program of the training."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from timbrelay.commands.voice import PROGRAMS, run
from timbrelay.environment import Environment
from timbrelay.errors import OpsError


def voice(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "timbrelay", "voice", *arguments]
    return subprocess.run(program, cwd=cwd, capture_output=True, text=True, timeout=60)


def test_the_words_are_listed(tmp_path: Path) -> None:
    """`voice` alone says what it can do."""
    listed = voice(cwd=tmp_path).stdout
    for word in ("train", "adapt", "evaluate", "promote"):
        assert word in listed


@pytest.mark.parametrize("word", sorted(PROGRAMS))
def test_a_word_becomes_its_program(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of the command line reaches the program as it was written, with the environment of the caller."""
    became: list[tuple[str, list[str], dict[str, str]]] = []
    monkeypatch.setattr(os, "execve", lambda *taken: became.append(taken))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: object())
    run(Environment.read({"A": "b"}), word, ["--out", "a b", "--help"])
    [(path, command, variables)] = became
    assert path == sys.executable
    assert command == [sys.executable, "-m", PROGRAMS[word].module, "--out", "a b", "--help"]
    assert variables == {"A": "b"}


@pytest.mark.parametrize("word", sorted(PROGRAMS))
def test_the_programs_are_there(word: str) -> None:
    """Every word has a module."""
    assert importlib.util.find_spec(PROGRAMS[word].module) is not None


def test_without_its_packages_training_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence with the fix, not a traceback."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(OpsError, match=r"`voice train` needs the packages of the training: `\./dev voice train`"):
        run(Environment.read({}), "train", [])


def test_a_programs_exit_code_is_the_commands(tmp_path: Path) -> None:
    """Wrong usage of the program is wrong usage of the command."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch, which `./dev voice train` installs")
    done = voice("train", "--out", "run", "--hours", "0", cwd=tmp_path)
    assert done.returncode == 2
    assert "'0' is not a number above 0" in done.stderr
