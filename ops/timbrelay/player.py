"""Plays a file with whatever player the machine has."""

from __future__ import annotations

import shutil
from pathlib import Path

from timbrelay.environment import Environment
from timbrelay.errors import OpsError
from timbrelay.stack.folder import DataFolder
from timbrelay.stack.process import Command, run_to_end

PLAYERS = {
    "paplay": (),
    "aplay": ("-q",),
    "afplay": (),
    "ffplay": ("-autoexit", "-nodisp", "-loglevel", "error"),
}
_TIMEOUT_S = 600.0


def play(environment: Environment, path: Path) -> bool:
    """Returns when it has been played; False when nothing here can play. Raises OpsError when the player fails."""
    search_path = environment.variables.get("PATH")
    found = [(program, name) for name in PLAYERS if (program := shutil.which(name, path=search_path))]
    if not found:
        return False
    program, name = found[0]
    file = path.absolute()
    command = Command("player", (program, *PLAYERS[name], str(file)), file.parent, environment.variables)
    log = DataFolder(environment.home).log
    if run_to_end(command, log, _TIMEOUT_S) != 0:
        raise OpsError(f"{name} could not play {path}; its words are at the end of {log}.")
    return True
