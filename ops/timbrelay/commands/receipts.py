"""`timbrelay receipts`: whether a deletion receipt is ours, and with which keys anybody else can tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from timbrelay.console import say
from timbrelay.environment import Environment
from timbrelay.errors import OpsError, UsageFault
from timbrelay.evidence import list_named_chains, open_database
from timbrelay.interruption import Interruption
from timbrelay.stack.local import open_servers
from timbrelay.stack.servers import Servers
from timbrelay.stack.settings import read_settings

if TYPE_CHECKING:
    from storage.database import Database
    from storage.evidence.jws import PublicKeys
    from storage.evidence.receipts import Receipt

_FILE_BYTES = 1024 * 1024


def run_verify(
    environment: Environment, interruption: Interruption, file: Path, keys: Path | None, object_id: str
) -> None:
    """Prints what a receipt proves; raises OpsError when it proves nothing.

    With a file of keys it asks nobody else. With the database's keys it also looks whether the audit log, as the
    receipt has it, is still there.
    """
    text, wanted = _load(file), _parse_id(object_id)
    if keys is not None:
        receipt = _verify(file, text, _read_keys(keys))
        noted = ""
    else:
        with open_servers(environment) as servers:
            receipt, noted = interruption.run(_verify_with_database(servers, environment, file, text))
    if wanted is not None and not receipt.object.matches(wanted):
        raise OpsError(f"{file} is a good receipt, but for another object than {wanted}.")
    for line in _describe(receipt, wanted):
        say(line)
    if noted:
        say(f"audit log     {noted}")


def run_keys(environment: Environment, interruption: Interruption) -> None:
    """Prints every public key that ever signed, as a JWK set; keep it where receipts may be asked for."""
    with open_servers(environment) as servers:
        say(interruption.run(_list_keys(servers, environment)))


def run_rotate(environment: Environment, interruption: Interruption) -> None:
    """Makes a new signing key and destroys the private part of the old one."""
    with open_servers(environment) as servers:
        key_id = interruption.run(_rotate(servers, environment))
    say(f"The key {key_id} signs from now on; `timbrelay receipts keys` prints it with those before it.")


def _load(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            content = opened.read(_FILE_BYTES + 1)
        if len(content) > _FILE_BYTES:
            raise UsageFault(f"{file} is larger than {_FILE_BYTES} bytes, which no receipt and no key set is.")
        return content.decode("ascii")
    except OSError as error:
        raise UsageFault(f"{file} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise OpsError(f"{file} proves nothing: it is no signed text.") from error


def _parse_id(object_id: str) -> UUID | None:
    try:
        return UUID(object_id) if object_id else None
    except ValueError as error:
        raise UsageFault(f"{object_id!r} is no id of a voice, consent or tenant.") from error


def _verify(file: Path, text: str, keys: PublicKeys) -> Receipt:
    from storage.errors import InvalidEvidence
    from storage.evidence.receipts import verify_receipt

    try:
        return verify_receipt(text, keys)
    except InvalidEvidence as error:
        raise OpsError(f"{file} proves nothing: {error}.") from error


def _read_keys(file: Path) -> PublicKeys:
    from storage.errors import InvalidEvidence
    from storage.evidence.jws import read_key_set

    try:
        return read_key_set(_load(file))
    except InvalidEvidence as error:
        raise UsageFault(f"{file} cannot be used: {error}.") from error


async def _verify_with_database(
    servers: Servers, environment: Environment, file: Path, text: str
) -> tuple[Receipt, str]:
    from storage.evidence.signing import load_public_keys

    async with open_database(servers, environment) as database:
        async with database.transaction() as connection:
            keys = await load_public_keys(connection)
        receipt = _verify(file, text, keys)
        return receipt, await _find_head(database, receipt)


async def _find_head(database: Database, receipt: Receipt) -> str:
    from storage.evidence.chain import holds

    async for chain in list_named_chains(database):
        if receipt.tenant.matches(chain.tenant):
            async with database.transaction(tenant=chain.tenant) as connection:
                if await holds(connection, chain.tenant, receipt.audit_head):
                    return f"of {chain.name}, still has entry {receipt.audit_head.sequence} as the receipt has it"
            raise OpsError(
                f"The receipt is good, but the audit log of {chain.name} has no entry {receipt.audit_head.sequence} as "
                "the receipt has it: it was cut off or rewritten. See `timbrelay audit verify`."
            )
    return "of its tenant is not in this database"


async def _list_keys(servers: Servers, environment: Environment) -> str:
    from storage.evidence.jws import write_key_set
    from storage.evidence.signing import load_public_keys

    async with open_database(servers, environment) as database, database.transaction() as connection:
        return json.dumps(write_key_set(await load_public_keys(connection)), indent=2)


async def _rotate(servers: Servers, environment: Environment) -> str:
    from storage.encryption.keyring import Keyring
    from storage.evidence.audit import PLATFORM, Act, append
    from storage.evidence.signing import rotate_signer

    async with open_database(servers, environment) as database:
        keyring = Keyring.from_settings(read_settings(environment, servers))
        async with database.transaction(tenant=PLATFORM) as connection:
            signer = await rotate_signer(connection, keyring)
            await append(
                connection,
                PLATFORM,
                Act("operator:cli", "keys.signing_rotated", "signing_key", signer.key_id, "cli"),
            )
    return signer.key_id


def _describe(receipt: Receipt, wanted: UUID | None) -> list[str]:
    about = f", and it is {wanted}" if wanted else ", whose id it does not tell (--id checks one)"
    lines = [
        f"This receipt is good. It proves that a {receipt.object_kind} was deleted{about}.",
        f"deletion      {receipt.deletion_id} ({receipt.reason})",
        f"asked for     {receipt.requested_at.isoformat()}",
        f"completed     {receipt.completed_at.isoformat()}",
        f"data keys     {len(receipt.destroyed_keys)} destroyed",
    ]
    for name, store in sorted(receipt.stores.items()):
        lines.append(f"store         {name}: {store.outcome}, {store.count} removed, {store.at.isoformat()}")
    return [*lines, f"backups       {receipt.backups}", f"release       {receipt.release}"]
