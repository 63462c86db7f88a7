"""`timbrelay keys`: API keys, and the keys that encrypt."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(help="API keys, and the keys that encrypt.", no_args_is_help=True)


@app.command("create")
def create_key(
    context: typer.Context,
    tenant: Annotated[str, typer.Option(help="The tenant's name; made if there is none.")] = "",
    scopes: Annotated[str, typer.Option(help="What it is for, with commas between them.")] = "speak,enrol,admin",
    expires: Annotated[str, typer.Option(help="When it ends: `90d`, or a time; never when left out.")] = "",
    operator: Annotated[bool, typer.Option("--operator", help="The operator's own, for /v1/operator.")] = False,
) -> None:
    """Make a key for a tenant, or for the operator, and print it, this once."""
    from timbrelay.commands.operator import run_create
    from timbrelay.keys import parse_order

    order = parse_order(tenant, scopes, expires, operator)
    run_create(context.obj.environment, context.obj.interruption, order)


@app.command("revoke")
def revoke_key(
    context: typer.Context, key_id: Annotated[str, typer.Argument(help="As `keys create` printed it.")]
) -> None:
    """Revoke a key."""
    from timbrelay.commands.operator import run_revoke

    run_revoke(context.obj.environment, context.obj.interruption, key_id)


@app.command("rotate")
def rotate_keys(
    context: typer.Context,
    tenant: Annotated[str, typer.Option(help="The name or id of a tenant who gets a new key.")] = "",
    root: Annotated[bool, typer.Option("--root", help="Make a new root key and wrap every key anew under it.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="The root key and every tenant's.")] = False,
    destroy_old: Annotated[
        bool, typer.Option("--destroy-old", help="Then destroy root keys that wrap nothing.")
    ] = False,
    anew: Annotated[bool, typer.Option("--new", help="Do not first end a rotation that was interrupted.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
) -> None:
    """Rotate the keys that encrypt voices, while everything goes on serving."""
    from timbrelay.commands.key_rotation import Plan, run_rotate

    plan = Plan.parse(
        tenant=tenant, root=root, everything=everything, destroy_old=destroy_old, anew=anew, dry_run=dry_run
    )
    run_rotate(context.obj.environment, context.obj.interruption, plan)


@app.command("status")
def show_root_keys(context: typer.Context) -> None:
    """List the root keys and how many tenant keys each wraps."""
    from timbrelay.commands.key_rotation import run_status

    run_status(context.obj.environment, context.obj.interruption)
