"""`timbrelay backup` and `timbrelay restore`: the data, and, in a file of its own, the keys that open it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from timbrelay.console import Bar, say, show_progress
from timbrelay.dumps import Dump, Dumper, Kind
from timbrelay.environment import Environment
from timbrelay.errors import ServerError, UsageFault
from timbrelay.interruption import Interruption
from timbrelay.stack.local import open_servers
from timbrelay.stack.schema import migrate
from timbrelay.stack.servers import Servers
from timbrelay.stack.settings import read_settings

if TYPE_CHECKING:
    from storage.evidence.reconciliation import Reconciled

_KEYS_NOTE = (
    "It opens every backup of the data that the root key can open. Keep it apart from them, and destroy it when the "
    "next one is made: what is deleted meanwhile stays readable for whoever has this file, an older backup and the "
    "root key."
)


def run_backup(environment: Environment, file: Path, *, keyring: bool) -> None:
    """Writes one dump, of the keyring or of everything else."""
    kind = Kind.KEYRING if keyring else Kind.DATA
    with open_servers(environment) as servers, show_progress(f"Backing up the {kind}"):
        Dumper.find(servers.database_owner_url, dict(environment.variables)).write(kind, file)
    say(f"The {kind} is in {file}.")
    if keyring:
        say(_KEYS_NOTE)


def run_restore(environment: Environment, interruption: Interruption, file: Path | None, keyring: Path | None) -> None:
    """Loads dumps into an empty database, and deletes again what was deleted since they were made."""
    if file is None and keyring is None:
        raise UsageFault("Name a backup of the data, one of the keyring with --keyring, or both.")
    with open_servers(environment) as servers, show_progress("Reading the backup") as bar:
        _load(environment, servers, bar, file, keyring)
        if keyring is None:
            say("The data is back. Nothing can be opened before the keyring is: `timbrelay restore --keyring FILE`.")
            return
        bar.step("Deleting what was deleted since")
        found = interruption.run(_reconcile(environment, servers, bar))
    for line in _describe(found):
        say(line)


def _load(environment: Environment, servers: Servers, bar: Bar, file: Path | None, keyring: Path | None) -> None:
    """Rows go in at the revision that they are for, and from there up to this release's."""
    from storage.schema import REVISION

    dumper = Dumper.find(servers.database_owner_url, dict(environment.variables))
    dumps = [_inspect(dumper, path, kind) for path, kind in ((file, Kind.DATA), (keyring, Kind.KEYRING)) if path]
    older = {dump.revision for dump in dumps if dump.revision != REVISION}
    if len(older) > 1 or (older and file is None):
        raise UsageFault("The keyring's backup is older than this release; restore it together with data of its time.")
    migrate(servers, environment)
    for dump in dumps:
        _check(dumper, dump)
    for revision in sorted({dump.revision for dump in dumps}):
        migrate(servers, environment, "head" if revision == REVISION else revision)
        for dump in dumps:
            if dump.revision == revision:
                bar.step(f"Loading the {dump.kind}")
                dumper.load(dump)
    migrate(servers, environment)
    say(f"{dumper.count('tenants')} tenants and {dumper.count('voices')} voices are in the database.")


def _inspect(dumper: Dumper, path: Path, wanted: Kind) -> Dump:
    from storage.schema import REVISION

    dump = dumper.inspect(path)
    if dump.kind is not wanted:
        raise UsageFault(f"{path} holds the {dump.kind}, not the {wanted}; give the keyring's file with --keyring.")
    if dump.revision > REVISION:
        raise UsageFault(f"{path} was made by a newer release (revision {dump.revision}); restore it with that one.")
    return dump


def _check(dumper: Dumper, dump: Dump) -> None:
    """Raises UsageFault when the place of the dump's rows is taken."""
    if filled := dumper.find_filled(dump.kind):
        raise UsageFault(
            f"The database is not empty: {filled} has rows. Restore into a new one: `createdb NAME`, and name it in "
            "DATABASE_URL and DATABASE_OWNER_URL."
        )


async def _reconcile(environment: Environment, servers: Servers, bar: Bar) -> Reconciled:
    from storage.database import Database
    from storage.encryption.keyring import Keyring
    from storage.errors import StorageError
    from storage.evidence.erasure import Erasure
    from storage.evidence.reconciliation import reconcile
    from storage.redis import connect

    settings = read_settings(environment, servers)
    database = Database.for_service(settings)
    redis = connect(settings.redis_url)
    try:
        erasure = Erasure(database, redis, Keyring.from_settings(settings))
        return await reconcile(database, erasure, bar.advance_to)
    except StorageError as error:
        raise ServerError(f"What was deleted since could not be deleted again: {error}.") from error
    finally:
        await redis.aclose()
        await database.close()


def _describe(found: Reconciled) -> list[str]:
    lines = [
        f"Deleted since the backup was made, and deleted again: {found.voices} voices, {found.consents} consents, "
        f"{found.tenants} tenants."
    ]
    if found.unfinished:
        lines.append(f"{found.unfinished} of these deletions are not complete; the service goes on with them.")
    lines.append("Everything else is as it was then: revoke again the API keys that were revoked since.")
    return lines
