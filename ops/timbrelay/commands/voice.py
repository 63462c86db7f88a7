"""`timbrelay voice`: makes, adapts, judges and promotes voice models, each by a module of `worker.training`."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from timbrelay.environment import Environment
from timbrelay.errors import OpsError


@dataclass(frozen=True, slots=True)
class Program:
    """A module that takes the rest of the command line, and whether it needs the packages of the training."""

    module: str
    trains: bool = True


PROGRAMS: Mapping[str, Program] = {
    "train": Program("worker.training.pipeline"),
    "adapt": Program("worker.training.adapt"),
    "evaluate": Program("worker.training.judging"),
    "promote": Program("worker.training.promote", trains=False),
}


def run(environment: Environment, word: str, arguments: Sequence[str]) -> NoReturn:
    """Becomes the program. Raises OpsError when its packages are not installed."""
    program = PROGRAMS[word]
    if program.trains and importlib.util.find_spec("torch") is None:
        raise OpsError(
            f"`voice {word}` needs the packages of the training: `./dev voice {word}` in a checkout installs them, "
            "`pip install 'timbrelay[cpu,training,torch,asr]'` elsewhere."
        )
    command = [sys.executable, "-m", program.module, *arguments]
    os.execve(sys.executable, command, dict(environment.variables))  # noqa: S606
