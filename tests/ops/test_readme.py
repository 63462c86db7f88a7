"""Every command that the README gives, as a reader would type it."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ops.test_up import ROOT, start_up, variables

REFERENCE = ROOT / "samples" / "reference-high.wav"
MORE = {
    "bench": ["--users", "1,2", "--seconds", "2", "--doors", "0"],
    "demo": ["--port", "0"],
    "up": ["--port", "0"],
}
"""What a test adds so that it takes seconds, and leaves the ports of the machine alone."""


def _commands(heading: str) -> list[list[str]]:
    """The lines of the `console` blocks under a heading, without `./dev`."""
    readme = (ROOT / "README.md").read_text()
    section = readme.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    lines = [shlex.split(line) for block in blocks for line in block.splitlines()]
    assert all(line[0] == "./dev" for line in lines)
    return [line[1:] for line in lines]


def test_no_command_is_outside_of_the_sections_that_are_run() -> None:
    """A new section with commands has to be run here, too."""
    readme = (ROOT / "README.md").read_text()
    run = _commands("Two commands") + _commands("A stack that stays")
    assert len(re.findall(r"^\./dev ", readme, re.MULTILINE)) == len(run)


@pytest.mark.parametrize("command", [c for c in _commands("Two commands") if c[0] == "demo"], ids=" ".join)
def test_the_demos_of_the_readme_work(command: list[str], tmp_path: Path) -> None:
    """Each writes its WAV, with a `my.wav` in the folder and something typed."""
    shutil.copy(REFERENCE, tmp_path / "my.wav")
    done = subprocess.run(
        [sys.executable, "-m", "timbrelay", *command, *MORE["demo"]],
        cwd=tmp_path,
        env=variables(tmp_path / "home"),
        input="Something typed.\n",
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    name = command[command.index("--output") + 1] if "--output" in command else "demo.wav"
    assert (tmp_path / name).stat().st_size > 10_000


def test_the_tests_of_the_readme_are_those_of_the_ci() -> None:
    """`./dev test` is what runs this; `.ci/run` calls it and nothing else."""
    assert ["test"] in _commands("Two commands")
    assert re.search(r'^exec \./dev test "\$@"$', (ROOT / ".ci" / "run").read_text(), re.MULTILINE)


def test_the_commands_around_a_running_stack_work_in_their_order(tmp_path: Path) -> None:
    """`up` in one terminal, all others in another; VOICE is what `voices` shows."""
    (up, *_), *others = _commands("A stack that stays")
    assert up == "up"
    with start_up() as stack:
        voice = ""
        for command in others:
            words = [voice if word == "VOICE" else word for word in command]
            output = ["--output", str(tmp_path / "said.wav")] if command[0] == "say" else []
            done = stack.call(*words, *MORE.get(command[0], []), *output)
            assert done.returncode == 0, (command, done.stderr)
            if command[0] == "voices":
                voice = done.stdout.split()[0]
