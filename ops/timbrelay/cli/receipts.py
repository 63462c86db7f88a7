"""`timbrelay receipts`: what proves a deletion."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Deletion receipts: check one, or give others the keys to.", no_args_is_help=True)


@app.command("verify")
def verify_receipt(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="The receipt, as the service gave it.")],
    keys: Annotated[
        Path | None, typer.Option(help="A file from `receipts keys`; the database's keys when left out.")
    ] = None,
    object_id: Annotated[str, typer.Option("--id", help="Check that it is about this voice, consent or tenant.")] = "",
) -> None:
    """Check a deletion receipt and print what it proves."""
    from timbrelay.commands.receipts import run_verify

    run_verify(context.obj.environment, context.obj.interruption, file, keys, object_id)


@app.command("keys")
def list_receipt_keys(context: typer.Context) -> None:
    """Print the public keys that receipts are checked with, as a JWK set."""
    from timbrelay.commands.receipts import run_keys

    run_keys(context.obj.environment, context.obj.interruption)


@app.command("rotate")
def rotate_receipt_key(context: typer.Context) -> None:
    """Sign with a new key from now on; earlier receipts stay good."""
    from timbrelay.commands.receipts import run_rotate

    run_rotate(context.obj.environment, context.obj.interruption)
