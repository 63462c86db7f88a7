"""`timbrelay voice`: models."""

from __future__ import annotations

import typer

app = typer.Typer(help="Voice models: train, adapt, evaluate, promote.", no_args_is_help=True)

# Their options, `--help` among them, are those of the programs that they become.
_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": list[str]()}


@app.command("train", context_settings=_PASSED_ON)
def train_voice(context: typer.Context) -> None:
    """Make a voice model, from nothing to a bundle."""
    from timbrelay.commands.voice import run

    run(context.obj.environment, "train", context.args)


@app.command("adapt", context_settings=_PASSED_ON)
def adapt_voice(context: typer.Context) -> None:
    """Fit the shipped voice model to recordings with transcripts."""
    from timbrelay.commands.voice import run

    run(context.obj.environment, "adapt", context.args)


@app.command("evaluate", context_settings=_PASSED_ON)
def evaluate_voice(context: typer.Context) -> None:
    """Measure a voice model on people it never heard."""
    from timbrelay.commands.voice import run

    run(context.obj.environment, "evaluate", context.args)


@app.command("promote", context_settings=_PASSED_ON)
def promote_voice(context: typer.Context) -> None:
    """Put a voice model into service, if it is no worse than the one that is there."""
    from timbrelay.commands.voice import run

    run(context.obj.environment, "promote", context.args)
