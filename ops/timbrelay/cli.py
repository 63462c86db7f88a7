"""The command line. Each command's module is imported when it is run: `--help` must not load the product."""

from __future__ import annotations

import gc
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

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
keys_app = typer.Typer(help="API keys, and the keys that encrypt.", no_args_is_help=True)
app.add_typer(keys_app, name="keys")
voice_app = typer.Typer(help="Voice models: train, adapt, evaluate, promote.", no_args_is_help=True)
app.add_typer(voice_app, name="voice")
audit_app = typer.Typer(help="The audit log: who did what, and whether it is as it was written.", no_args_is_help=True)
app.add_typer(audit_app, name="audit")
receipts_app = typer.Typer(help="Deletion receipts: check one, or give others the keys to.", no_args_is_help=True)
app.add_typer(receipts_app, name="receipts")
# Their options, `--help` among them, are those of the programs that they become.
_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": list[str]()}

Port = Annotated[int | None, typer.Option(min=0, max=65535, help="The relay's port; 8080, or any that is free.")]
Output = Annotated[Path, typer.Option(help="The WAV file to write.")]
Consent = Annotated[bool, typer.Option("--consent", help="You have the speaker's consent.")]
Url = Annotated[str, typer.Option(help="A relay elsewhere, with TIMBRELAY_API_KEY; the local stack's when left out.")]


@dataclass(frozen=True, slots=True)
class _Context:
    environment: Environment
    interruption: Interruption


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
    port: Port = None,
) -> None:
    """Measure what voice agents get from the local stack, until it breaks."""
    from timbrelay.commands.bench import Plan, run
    from timbrelay.stack.local import Options

    plan = Plan(Plan.parse_users(users), seconds, json, Options(port), seed, beyond, profile, record)
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
def migrate(context: typer.Context) -> None:
    """Bring the database to this release's revision."""
    from timbrelay.commands.operator import run_migrate

    run_migrate(context.obj.environment)


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


@keys_app.command("create")
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


@keys_app.command("revoke")
def revoke_key(
    context: typer.Context, key_id: Annotated[str, typer.Argument(help="As `keys create` printed it.")]
) -> None:
    """Revoke a key."""
    from timbrelay.commands.operator import run_revoke

    run_revoke(context.obj.environment, context.obj.interruption, key_id)


@audit_app.command("verify")
def verify_audit(
    context: typer.Context,
    tenant: Annotated[str, typer.Option(help="One tenant's log, by name or id; all of them when left out.")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print the verdicts as JSON.")] = False,
) -> None:
    """Check every audit log, and name the first place that was tampered with."""
    from timbrelay.commands.audit import run_verify

    run_verify(context.obj.environment, context.obj.interruption, tenant, json)


@audit_app.command("show")
def show_audit(
    context: typer.Context,
    tenant: Annotated[str, typer.Option(help="By name or id; the platform's own log when left out.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many entries, the last ones.")] = 50,
) -> None:
    """Print the last entries of a log as JSON, one a line."""
    from timbrelay.commands.audit import run_show

    run_show(context.obj.environment, context.obj.interruption, tenant, limit)


@receipts_app.command("verify")
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


@receipts_app.command("keys")
def list_receipt_keys(context: typer.Context) -> None:
    """Print the public keys that receipts are checked with, as a JWK set."""
    from timbrelay.commands.receipts import run_keys

    run_keys(context.obj.environment, context.obj.interruption)


@receipts_app.command("rotate")
def rotate_receipt_key(context: typer.Context) -> None:
    """Sign with a new key from now on; earlier receipts stay good."""
    from timbrelay.commands.receipts import run_rotate

    run_rotate(context.obj.environment, context.obj.interruption)


@keys_app.command("rotate")
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


@keys_app.command("status")
def show_root_keys(context: typer.Context) -> None:
    """List the root keys and how many tenant keys each wraps."""
    from timbrelay.commands.key_rotation import run_status

    run_status(context.obj.environment, context.obj.interruption)


@voice_app.command("train", context_settings=_PASSED_ON)
def train_voice(context: typer.Context) -> None:
    """Make a voice model, from nothing to a bundle."""
    from timbrelay.commands.voice import run

    run(context.obj.environment, "train", context.args)


@voice_app.command("adapt", context_settings=_PASSED_ON)
def adapt_voice(context: typer.Context) -> None:
    """Fit the shipped voice model to recordings with transcripts."""
    from timbrelay.commands.voice import run

    run(context.obj.environment, "adapt", context.args)


@voice_app.command("evaluate", context_settings=_PASSED_ON)
def evaluate_voice(context: typer.Context) -> None:
    """Measure a voice model on people it never heard."""
    from timbrelay.commands.voice import run

    run(context.obj.environment, "evaluate", context.args)


@voice_app.command("promote", context_settings=_PASSED_ON)
def promote_voice(context: typer.Context) -> None:
    """Put a voice model into service, if it is no worse than the one that is there."""
    from timbrelay.commands.voice import run

    run(context.obj.environment, "promote", context.args)


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
