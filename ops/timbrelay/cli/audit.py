"""`timbrelay audit`: the audit log."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(help="The audit log: who did what, and whether it is as it was written.", no_args_is_help=True)


@app.command("verify")
def verify_audit(
    context: typer.Context,
    tenant: Annotated[str, typer.Option(help="One tenant's log, by name or id; all of them when left out.")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print the verdicts as JSON.")] = False,
) -> None:
    """Check every audit log, and name the first place that was tampered with."""
    from timbrelay.commands.audit import run_verify

    run_verify(context.obj.environment, context.obj.interruption, tenant, json)


@app.command("show")
def show_audit(
    context: typer.Context,
    tenant: Annotated[str, typer.Option(help="By name or id; the platform's own log when left out.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many entries, the last ones.")] = 50,
) -> None:
    """Print the last entries of a log as JSON, one a line."""
    from timbrelay.commands.audit import run_show

    run_show(context.obj.environment, context.obj.interruption, tenant, limit)
