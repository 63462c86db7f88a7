"""The command line. Each command's module is imported when it is run: `--help` must not load the product."""

from __future__ import annotations

import gc
import sys
from dataclasses import dataclass

import typer

from timbrelay.cli import audit, keys, operation, receipts, speech, voice_models
from timbrelay.console import complain
from timbrelay.environment import Environment
from timbrelay.errors import EXIT_FAILED, EXIT_INTERRUPTED, OpsError
from timbrelay.interruption import Interruption

app = typer.Typer(
    name="timbrelay",
    help="Speech in an enrolled voice, streamed while the text is still arriving.",
    add_completion=False,
    no_args_is_help=True,
    # A developer wants the plain traceback; a user must never need one.
    pretty_exceptions_enable=False,
)
app.add_typer(speech.app)
app.add_typer(operation.app)
app.add_typer(keys.app, name="keys")
app.add_typer(audit.app, name="audit")
app.add_typer(receipts.app, name="receipts")
app.add_typer(voice_models.app, name="voice")


@dataclass(frozen=True, slots=True)
class _Context:
    environment: Environment
    interruption: Interruption


def main() -> None:
    """Runs the command line and exits: 0 fine, 1 failed, 2 wrong usage, 130 interrupted."""
    status = invoke(sys.argv[1:])
    # Everything is closed: spare the interpreter its last look at every object, which can take half a second.
    gc.freeze()
    sys.exit(status)


def invoke(arguments: list[str]) -> int:
    """Runs one command and gives its exit code; faults become one sentence on standard error."""
    interruption = Interruption()
    interruption.install()
    context = _Context(Environment.read(), interruption)
    try:
        app(arguments, prog_name="timbrelay", obj=context)
    except SystemExit as end:
        if end.code == EXIT_INTERRUPTED:
            complain("Interrupted.")
        return end.code if isinstance(end.code, int) else EXIT_FAILED
    except OpsError as error:
        complain(str(error))
        return error.exit_code
    return 0
