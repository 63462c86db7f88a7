"""What operators do: measure, examine, migrate, back up."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from timbrelay.cli.options import Port

app = typer.Typer()


@app.command()
def bench(
    context: typer.Context,
    users: Annotated[str, typer.Option(help="Voice agents at once, one run each.")] = "1,10,24,32,64",
    seconds: Annotated[float, typer.Option(min=1, max=3600, help="How long each run lasts.")] = 30.0,
    json: Annotated[Path | None, typer.Option(help="The file for the figures; bench.json in the data folder.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed, the same conversations.")] = 0,
    beyond: Annotated[bool, typer.Option("--beyond", help="Go on after the first number that is not held.")] = False,
    profile: Annotated[bool, typer.Option("--profile", help="Draw flame graphs of relay and worker (py-spy).")] = False,
    record: Annotated[bool, typer.Option("--record", help="Write docs/benchmarks.md.")] = False,
    doors: Annotated[int, typer.Option(min=0, max=100, help="Rounds over every door afterwards; 0 for none.")] = 4,
    port: Port = None,
) -> None:
    """Measure what voice agents get from the local stack, until it breaks."""
    from timbrelay.commands.bench import Plan, run
    from timbrelay.stack.local import Options

    plan = Plan(Plan.parse_users(users), seconds, json, Options(port), seed, beyond, profile, record, doors)
    run(context.obj.environment, context.obj.interruption, plan)


@app.command("bench-storage")
def bench_storage(
    context: typer.Context,
    voices: Annotated[int, typer.Option(min=10_000, max=10_000_000, help="How many voices.")] = 100_000,
    seed: Annotated[int, typer.Option(help="The same seed, the same choices.")] = 0,
    record: Annotated[bool, typer.Option("--record", help="Write docs/benchmarks-storage.md.")] = False,
) -> None:
    """Measure how long storage takes with many voices in it."""
    from timbrelay.commands.bench_storage import run

    run(context.obj.environment, context.obj.interruption, voices, seed, record)


@app.command()
def doctor(context: typer.Context) -> None:
    """Find out what is wrong on this machine."""
    from timbrelay.commands.doctor import run

    run(context.obj.environment, context.obj.interruption)


@app.command()
def migrate(
    context: typer.Context,
    to: Annotated[str, typer.Option(help="An older revision to go back to, before its release is run again.")] = "",
) -> None:
    """Bring the database to this release's revision."""
    from timbrelay.commands.operator import run_migrate

    run_migrate(context.obj.environment, to)


@app.command()
def backup(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="The new file.")],
    keyring: Annotated[
        bool, typer.Option("--keyring", help="The wrapped keys, to be kept apart and not for long.")
    ] = False,
) -> None:
    """Back up the data, or, into a file of its own, the keys that open it."""
    from timbrelay.commands.backup import run_backup

    run_backup(context.obj.environment, file, keyring=keyring)


@app.command()
def restore(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="A backup of the data.")] = None,
    keyring: Annotated[Path | None, typer.Option(help="The latest backup of the keyring.")] = None,
) -> None:
    """Bring a backup back into an empty database; what was deleted since is deleted again."""
    from timbrelay.commands.backup import run_restore

    run_restore(context.obj.environment, context.obj.interruption, file, keyring)
