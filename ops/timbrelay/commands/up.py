"""`timbrelay up`: the local stack in the foreground."""

from __future__ import annotations

import contextlib
import time

from timbrelay.console import say, show_progress
from timbrelay.environment import Environment
from timbrelay.interruption import Interruption
from timbrelay.keys import key_file, local_key
from timbrelay.stack.folder import DataFolder
from timbrelay.stack.local import Options, Stack, run_stack

_PERIOD_S = 0.2


def run(environment: Environment, interruption: Interruption, options: Options) -> None:
    """Does not return of itself: Ctrl-C ends it by KeyboardInterrupt. Raises OpsError when the stack cannot go on."""
    folder = DataFolder(environment.home)
    with contextlib.ExitStack() as life:
        with show_progress("Starting") as bar:
            stack = life.enter_context(run_stack(environment, options, bar.step, lambda: interruption.hurry))
            interruption.run(local_key(folder, stack.servers))
        _describe(folder, stack)
        while True:
            stack.check()
            time.sleep(_PERIOD_S)


def _describe(folder: DataFolder, stack: Stack) -> None:
    say(f"The relay listens at {stack.note.relay_url} (docs/api.md, docs/protocol.md).")
    say(f"A page to record a voice on: {stack.note.relay_url}/studio/")
    for name, url in stack.note.metrics_urls.items():
        say(f"Figures and probes of the {name}: {url}/metrics and {url}/readyz")
    say(f"The key of the tenant `demo` is in {key_file(folder)}, the log in {folder.log}.")
    say("Ctrl-C stops everything.")
