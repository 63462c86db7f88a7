"""The local stack, and speaking with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from timbrelay.cli.options import Port

app = typer.Typer()

Output = Annotated[Path, typer.Option(help="The WAV file to write.")]
Consent = Annotated[bool, typer.Option("--consent", help="You have the speaker's consent.")]
Url = Annotated[str, typer.Option(help="A relay elsewhere, with TIMBRELAY_API_KEY; the local stack's when left out.")]


@app.command()
def up(
    context: typer.Context,
    port: Port = None,
    workers: Annotated[int, typer.Option(min=1, max=16, help="How many workers.")] = 1,
) -> None:
    """Keep the local stack running until Ctrl-C."""
    from timbrelay.commands.up import run
    from timbrelay.stack.local import Options

    run(context.obj.environment, context.obj.interruption, Options(port, workers, shared=True))


@app.command()
def demo(
    context: typer.Context,
    reference: Annotated[Path | None, typer.Option(help="5-10 s of somebody's speech: WAV, FLAC, OGG or MP3.")] = None,
    consent: Consent = False,
    text: Annotated[str | None, typer.Option(help="What to say; `-` reads standard input as it is typed.")] = None,
    output: Output = Path("demo.wav"),
    play: Annotated[bool, typer.Option("--play", help="Play the result.")] = False,
    port: Port = None,
) -> None:
    """Clone a voice and speak with it, from nothing to a WAV file."""
    from timbrelay.commands.demo import PARAGRAPH, Request, run
    from timbrelay.stack.local import Options

    spoken = PARAGRAPH if text is None else text
    request = Request(reference, consent, spoken, output, play, Options(port))
    run(context.obj.environment, context.obj.interruption, request)


@app.command()
def enroll(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="The recording: WAV, FLAC, OGG or MP3.")],
    name: Annotated[str, typer.Option(help="The voice's name; the file's when left out.")] = "",
    consent: Consent = False,
    url: Url = "",
) -> None:
    """Enrol a voice and print its id."""
    from timbrelay.commands.voices import Door, run_enroll

    run_enroll(Door(context.obj.environment, url), context.obj.interruption, file, name, consent)


@app.command()
def say(
    context: typer.Context,
    text: Annotated[str, typer.Argument(help="What to say; `-` reads standard input as it is typed.")],
    voice: Annotated[str, typer.Option(help="The voice's id.")],
    output: Output = Path("speech.wav"),
    url: Url = "",
) -> None:
    """Speak with an enrolled voice."""
    from timbrelay.commands.voices import Door, run_say

    run_say(Door(context.obj.environment, url), context.obj.interruption, text, voice, output)


@app.command()
def voices(context: typer.Context, url: Url = "") -> None:
    """List the voices: id, state and name."""
    from timbrelay.commands.voices import Door, run_list

    run_list(Door(context.obj.environment, url), context.obj.interruption)
